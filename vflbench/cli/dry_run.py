"""`dry_run=true`: what a run would send, without its folder."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from vflbench import registry
from vflbench.types import RunConfig


def dry_run(config: RunConfig) -> str:
    """Parties, shapes and messages of a checked configuration."""
    with _without_compiler():
        from vflbench.runner import run

        text: str = run.dry_run(config, info=registry.algorithms()[config.algorithm.name])
    return text


class _Compiler(ModuleType):
    """What torch's optimisers ask of its compiler where nothing is compiled; whatever else is asked for brings the compiler itself."""

    @staticmethod
    def disable(function: Any, *_: Any, **__: Any) -> Any:
        return function

    @staticmethod
    def graph_break() -> None:
        return None

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        _forget(self)
        import torch._dynamo

        return getattr(torch._dynamo, name)


@contextlib.contextmanager
def _without_compiler() -> Iterator[None]:
    """The first optimiser would import torch's compiler, more than a second of work that a round does not use."""
    stands_in = None
    if "torch._dynamo" not in sys.modules:
        stands_in = sys.modules["torch._dynamo"] = _Compiler("torch._dynamo")
    try:
        yield
    finally:
        if stands_in is not None:
            _forget(stands_in)


def _forget(stands_in: ModuleType) -> None:
    if sys.modules.get("torch._dynamo") is stands_in:
        del sys.modules["torch._dynamo"]
    torch = sys.modules.get("torch")
    if torch is not None and vars(torch).get("_dynamo") is stands_in:
        del torch._dynamo
