"""`dry_run=true`: what a run would send, without its folder."""

from vflbench import compiler, registry
from vflbench.types import RunConfig


def dry_run(config: RunConfig) -> str:
    """Parties, shapes and messages of a checked configuration."""
    compiler.put_off()
    from vflbench.runner.dry_run import dry_run as described

    return described(config, info=registry.algorithms()[config.algorithm.name])
