"""Hydra's grammar of overrides: one override, the values that it gives, and a sweep's jobs."""

import contextlib
import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Glob, IntervalSweep, Quote, QuotedString, RangeSweep, Sweep
from hydra.core.override_parser.types import Override as HydraOverride
from hydra.errors import HydraException

__all__ = ["Glob", "HydraException", "Override", "RangeSweep", "Sweep"]  # types that other modules use


@dataclass(frozen=True)
class Override:
    """One override: the members of Hydra's own class that vflbench uses, since Hydra documents none of them."""

    parsed: HydraOverride

    @property
    def key_or_group(self) -> str:
        """The key, without `+` or `~`, and without its package."""
        return self.parsed.key_or_group

    @property
    def package(self) -> str | None:
        """The package, as in `group@package=option`."""
        return self.parsed.package

    def value(self) -> Any:
        """The value; of a sweep an object of Hydra's."""
        return self.parsed.value()

    def get_key_element(self) -> str:
        """The key as it was typed."""
        return self.parsed.get_key_element()

    def sweep_string_iterator(self) -> Iterator[str]:
        """The values of a discrete sweep, as they were typed."""
        return self.parsed.sweep_string_iterator()

    def is_add(self) -> bool:
        """Whether it is `+key=value` or `++key=value`."""
        return self.parsed.is_add() or self.parsed.is_force_add()

    def is_delete(self) -> bool:
        """Whether it is `~key`."""
        return self.parsed.is_delete()

    def is_sweep_override(self) -> bool:
        """Whether it has several values."""
        return self.parsed.is_sweep_override()

    def is_discrete_sweep(self) -> bool:
        """Whether it lists its values."""
        return self.parsed.is_discrete_sweep()

    def is_hydra_override(self) -> bool:
        """Whether it belongs to Hydra's own configuration."""
        return self.parsed.is_hydra_override()


def line(override: Override) -> str:
    """The override as it was typed."""
    return override.parsed.input_line or ""


def values_of(override: Override) -> list[Any]:
    """Every value that the override gives its key, of an interval its ends; Hydra's own iterator leaves quotes."""
    if override.is_discrete_sweep():
        return [_unquoted(value) for value in override.parsed.sweep_iterator()]
    value = override.value()
    return [value.start, value.end] if isinstance(value, IntervalSweep) else [value]


def _unquoted(value: Any) -> Any:
    if isinstance(value, dict):
        return {_unquoted(key): _unquoted(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_unquoted(one) for one in value]
    return value.text if isinstance(value, QuotedString) else value


def texts(key: str, text: str) -> list[str]:
    """The values that `key=text` gives a sweep's jobs, as these have them; else `text` itself."""
    found = parsed(f"{key}={text}") if re.search("[,($]", text) else None
    if found is None or (found.is_sweep_override() and not found.is_discrete_sweep()):
        return [text]
    return [*_texts(found)]


def mapping(key: str, text: str) -> dict[Any, Any] | None:
    """The value of `key=text` where it is a mapping."""
    found = parsed(f"{key}={text}") if text.startswith("{") else None
    value = values_of(found)[0] if found is not None and not found.is_sweep_override() else None
    return value if isinstance(value, dict) else None


def parsed(text: str) -> Override | None:
    """An override; None where it is none, as a sweeper's own way to describe values."""
    with contextlib.suppress(HydraException):
        return Override(OverridesParser.create().parse_override(text))
    return None


def expand(overrides: Iterable[Override]) -> list[list[str]]:
    """A sweep's jobs in the order of Hydra's own sweeper, so that they are checked and counted before any starts."""
    words: dict[str, list[str]] = {}
    for override in overrides:
        key = override.get_key_element()
        words[key] = [f"{key}={value}" for value in _texts(override)]
    return [list(job) for job in itertools.product(*words.values())]


def _texts(override: Override) -> Iterable[str]:
    """Its values as the jobs of a sweep have them."""
    swept = override.is_discrete_sweep()
    return override.sweep_string_iterator() if swept else [override.parsed.get_value_element_as_str()]


def quoted(key: str, text: str | Sequence[str]) -> str:
    """The override that gives `key` exactly this text, or texts; only Hydra's grammar knows what needs quotes."""
    texts = [text] if isinstance(text, str) else text
    escaped = (re.sub(r"(\\*)\$\{", r"\1\1\\${", one) for one in texts)  # or OmegaConf would look for what is named so
    words = [QuotedString(one, Quote.single).with_quotes() for one in escaped]
    return f"{key}={words[0]}" if isinstance(text, str) else f"{key}=[{','.join(words)}]"
