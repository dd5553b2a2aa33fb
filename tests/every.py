"""Many cases of one test: as one test, which names all cases that break it, or few of them in the fast tests."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any

import pytest


def for_each(
    names: str | tuple[str, ...], cases: Iterable[Any]
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """As pytest.mark.parametrize, in one test: for short checks that leave nothing behind, as they share fixtures."""
    keys, cases = (names,) if isinstance(names, str) else names, list(cases)
    given = [dict(zip(keys, (case,) if isinstance(names, str) else case, strict=True)) for case in cases]

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(test)
        def every_case(**fixtures: Any) -> None:
            assert given
            broken: dict[str, Exception] = {}
            for values in given:
                try:
                    test(**values, **fixtures)
                except Exception as error:
                    broken[", ".join(map(str, values.values()))] = error
            if broken:
                raise ExceptionGroup(f"{len(broken)} of {len(given)}: {'; '.join(broken)}", list(broken.values()))

        signature = inspect.signature(test)
        fixtures = [fixture for name, fixture in signature.parameters.items() if name not in keys]
        vars(every_case)["__signature__"] = signature.replace(parameters=fixtures)
        return every_case

    return decorate


def few_fast(cases: Iterable[Any], fast: int = 1) -> list[Any]:
    """Parameters of a test: the first cases in the fast tests, the others in the slow ones."""
    every = [
        one if hasattr(one, "marks") else pytest.param(*(one if isinstance(one, tuple) else [one])) for one in cases
    ]
    return [*every[:fast], *(one._replace(marks=[*one.marks, pytest.mark.slow]) for one in every[fast:])]
