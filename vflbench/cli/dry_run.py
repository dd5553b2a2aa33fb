"""`dry_run=true`: what a run would send, without its folder, and which values are no defaults."""

from omegaconf import DictConfig

from vflbench import compiler, registry
from vflbench.config import layers
from vflbench.results.texts import align
from vflbench.types import RunConfig


def dry_run(config: RunConfig, hydra: DictConfig) -> str:
    """Parties, shapes and messages of a checked configuration; `hydra` is its node of that name."""
    compiler.put_off()
    from vflbench.runner.dry_run import dry_run as described

    text = described(config, info=registry.algorithms()[config.algorithm.name])
    rows = [
        [one["layer"], key, one["from"], one.get("note", "")]
        for key, one in layers.changed_keys(hydra).items()
        if key != "dry_run"
    ]
    return f"{text}\n\nvalues that are no defaults (vflbench explain KEY says more)\n{align(rows)}" if rows else text
