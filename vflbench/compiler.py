"""Torch's compiler stays out of a process until something asks for it: importing it takes longer than torch itself.

Torch's optimisers import `torch._dynamo` although nothing is compiled. A stand-in has the two functions that they use
then. Anything else, also a submodule, gets the compiler itself.
"""

import importlib
import importlib.util
import sys
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

NAME = "torch._dynamo"


def put_off() -> None:
    """Keep the compiler from being imported before it is used, unless it has been imported."""
    if NAME not in sys.modules:
        sys.modules[NAME] = _StandIn(NAME)
        sys.meta_path.insert(0, _Submodules())


class _StandIn(ModuleType):
    """What an optimiser uses of the compiler when nothing is compiled."""

    __path__ = ()  # type: ignore[assignment]  # a package
    graph_break = staticmethod(lambda: None)
    disable = staticmethod(lambda function, *_, **__: function)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # `inspect` asks every module for its file; the accountant's import asks `inspect`
            raise AttributeError(name)
        return getattr(_compiler(), name)


def _compiler() -> ModuleType:
    """The compiler itself; the stand-in makes room for it."""
    if isinstance(sys.modules.get(NAME), _StandIn):
        del sys.modules[NAME]
        vars(sys.modules.get("torch", sys)).pop("_dynamo", None)
        sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, _Submodules)]
    return importlib.import_module(NAME)


class _Submodules:
    """Finds submodules of the stand-in: those of the compiler."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """The submodule's, where the stand-in is its package."""
        if not name.startswith(f"{NAME}."):
            return None
        _compiler()
        return ModuleSpec(name, _Imported(sys.modules[name])) if name in sys.modules else importlib.util.find_spec(name)


class _Imported(Loader):
    """Loads a module that its package has imported already: executed once more, it would be there twice."""

    def __init__(self, module: ModuleType) -> None:
        self.module, self.spec = module, module.__spec__

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """The module as it is."""
        return self.module

    def exec_module(self, module: ModuleType) -> None:
        """Give it back its own specification."""
        module.__spec__ = self.spec
