"""What was refused already, so that nothing is derived from it: a second problem would be made up.

A value that was refused is replaced by `REFUSED` before the rules between keys are checked. A rule that looks at it
ends, without a problem. Plain defaults in its place would be judged as if the user had chosen them.
"""

import contextlib
import re
from collections.abc import Callable, Iterable
from dataclasses import is_dataclass
from typing import Any, NoReturn

from vflbench.types import Problem, RunConfig

CHOOSERS = ("algorithm", "dataset", "experiment")  # groups whose options choose options of other groups, and values


class RefusedError(Exception):
    """A rule asks for a value that was refused."""


class Refused:
    """Stands for a value that was refused; it can be passed on, and whoever asks what it is gets RefusedError."""

    __slots__ = ()

    def _ask(self, *_: Any) -> NoReturn:
        raise RefusedError

    __getattr__ = __getitem__ = __contains__ = __iter__ = __len__ = __call__ = _ask
    __bool__ = __int__ = __float__ = __index__ = __str__ = __repr__ = __format__ = __hash__ = _ask
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = _ask
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _ask
    __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = __pow__ = __rpow__ = __neg__ = __abs__ = _ask
    __dict__ = property(_ask)  # vars()


REFUSED: Any = Refused()


def sound(rule: Callable[..., Iterable[Problem]], *about: Any) -> list[Problem]:
    """What a rule finds before it asks for a refused value."""
    found: list[Problem] = []
    with contextlib.suppress(RefusedError):  # what it found before it asked counts
        found.extend(problem for problem in rule(*about) if problem.value is not REFUSED)
    return found


class Judged:
    """The words of a command line, of which some were refused."""

    def __init__(self, problems: Iterable[Problem], typed: Iterable[str]) -> None:
        """`problems` so far, and the keys and groups that were `typed`."""
        problems = list(problems)
        self.typed = set(typed)
        self.keys = {problem.key.lstrip("+~") for problem in problems}
        self.meant = {problem.closest for problem in problems if problem.closest}  # what a typo stands for

    @property
    def open(self) -> bool:
        """Whether an option that chooses others was refused: then nobody knows what they are."""
        return any(group in self.keys for group in CHOOSERS)

    def unknown(self, key: str) -> bool:
        """Whether nobody knows which keys stand beside `key`: the option that has them was refused, or its chooser."""
        group = key.partition(".")[0]
        return group != key and (group in self.keys or (self.open and group not in self.typed))

    def without(self, config: RunConfig) -> RunConfig:
        """`config`, with REFUSED for what was refused and what depends on it."""
        for key in self.keys | self.meant:
            _replace(config, re.split(r"[.\[]", key), group=key in self.keys)
        for name in vars(config) if self.open else ():
            if not any(word.split(".")[0] == name for word in self.typed):
                setattr(config, name, REFUSED)
        return config


def _replace(config: Any, parts: list[str], group: bool) -> None:
    """Put REFUSED where `parts` lead in nested dataclasses: for a `group` as a whole only where that is asked for.

    Below a list or dict it is the whole of it.
    """
    name, *below = parts
    inside = vars(config).get(name)
    if below and is_dataclass(inside):
        _replace(inside, below, group)
    elif name in vars(config) and (group or not is_dataclass(inside)):
        vars(config)[name] = REFUSED
