"""A rule over every entry of a registry as one test, which names all entries that break it."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any


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
