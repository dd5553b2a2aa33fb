"""`dry_run=true`: what a run would send, without its folder."""

import contextlib
import importlib
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from vflbench import registry
from vflbench.types import RunConfig


def dry_run(config: RunConfig) -> str:
    """Parties, shapes and messages of a checked configuration."""
    with _without_compiler():
        from vflbench.runner.dry_run import dry_run as described

        return described(config, info=registry.algorithms()[config.algorithm.name])


class _Compiler(ModuleType):
    """What torch's optimisers use of its compiler when nothing is compiled.

    Any other attribute imports the compiler itself.
    """

    graph_break = staticmethod(lambda: None)
    disable = staticmethod(lambda function, *_, **__: function)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # `inspect` asks every module for its file; the accountant's import asks `inspect`
            raise AttributeError(name)
        _forget()
        return getattr(importlib.import_module(self.__name__), name)


@contextlib.contextmanager
def _without_compiler() -> Iterator[None]:
    """Keep torch's compiler from being imported: the first optimiser would spend more than a second on it."""
    sys.modules.setdefault("torch._dynamo", _Compiler("torch._dynamo"))
    try:
        yield
    finally:
        _forget()


def _forget() -> None:
    """Remove the stand-in for the compiler."""
    if isinstance(sys.modules.get("torch._dynamo"), _Compiler):
        del sys.modules["torch._dynamo"]
        vars(sys.modules.get("torch", sys)).pop("_dynamo", None)
