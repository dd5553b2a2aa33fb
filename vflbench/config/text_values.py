"""Texts for keys of other types, and other types for keys of texts.

Environment variables and values in quotes are texts, whatever they say. `seed=${oc.env:SLURM_ARRAY_TASK_ID}` gives the
text 7. It is read as Hydra reads a typed 7, so that the run is that of seed=7: its hash, its manifest and its averages.

Hydra reads the typed name of a column, 1e5, as the number 100000.0. A key that takes no numbers gets what was typed.
"""

import dataclasses
import functools
import re
import types
import typing
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

ENVIRONMENT = "${oc.env:"
NUMBERLIKE = re.compile(r"\d|true|false|null|inf|nan", re.IGNORECASE)  # what Hydra may not read as a text


def read(kind: Any, text: str) -> Any:
    """The value of type `kind` that a text means; the text itself where the key takes texts, or it means none."""
    if _takes_texts(kind, text) or "${" in text:
        return text
    try:
        found = OmegaConf.create({"text": text, "value": "${oc.decode:${text}}"}).value
    except OmegaConfBaseException:
        return text
    found = OmegaConf.to_container(found) if OmegaConf.is_config(found) else found
    return found if not isinstance(found, str) and _may_be(kind, found) else text


def _takes_texts(kind: Any, text: str) -> bool:
    """Whether a text may stay one."""
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Annotated:
        return _takes_texts(args[0], text)
    if origin in (typing.Union, types.UnionType):
        return any(_takes_texts(one, text) for one in args)
    return kind in (Any, str) or (origin is typing.Literal and text in args)


def _may_be(kind: Any, value: Any) -> bool:
    """Whether a choice between literals has the value; other types are checked later."""
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        return any(_may_be(one, value) for one in typing.get_args(kind))
    return value in typing.get_args(kind) if typing.get_origin(kind) is typing.Literal else True


def as_typed(kind: Any, value: Any, typed: str) -> Any:
    """`value`, which Hydra made of the word `typed`; the word itself where a key of texts would get something else."""
    kinds = [*_options(kind)]
    if isinstance(value, list):
        words = [word.strip() for word in typed.strip()[1:-1].split(",")]
        own = next((typing.get_args(one) for one in kinds if typing.get_origin(one) is list), ())
        if not own or len(words) != len(value):  # some are quoted, or lists themselves
            return value
        return [as_typed(own[0], item, word) for item, word in zip(value, words, strict=True)]
    other = value is None or isinstance(value, bool | int | float)
    return typed.strip() if other and str in kinds and type(value) not in kinds and str(value) != typed else value


def resolved(value: Any) -> Any:
    """`value`; a text with environment variables as what they say.

    Raises
    ------
    ValueError : a variable is not set.
    """
    if not (isinstance(value, str) and ENVIRONMENT in value):
        return value
    try:
        return OmegaConf.create({"value": value}).value
    except OmegaConfBaseException as error:
        if unset := re.search(r"Environment variable '(.+?)' not found", str(error)):
            raise ValueError(f"the environment variable {unset[1]} is not set") from None
        return value  # it refers to another key too


def settle(
    cfg: DictConfig, words: Iterable[str], kinds: typing.Callable[[Mapping[str, Any]], Mapping[str, Any]]
) -> None:
    """Read, in place, the texts that a composed configuration has for keys of other types, and the other way round.

    Parameters
    ----------
    words : the overrides that it was composed with.
    kinds : the types of its root keys; asked only where they may matter.
    """
    raw: Any = OmegaConf.to_container(cfg, resolve=False)
    raw.pop("hydra", None)
    known = functools.cache(lambda: kinds(raw))
    for key, _, typed in (word.lstrip("+").partition("=") for word in words):
        path, value = tuple(key.split(".")), _at(raw, key)
        read_else = value is not None or typed.lower() == "null"
        if not read_else or isinstance(value, str | dict) or typed == str(value) or not NUMBERLIKE.search(typed):
            continue
        if (new := as_typed(_kind_at(known(), path), value, typed)) != value:
            OmegaConf.update(cfg, key, new)
    for path in [path for path, text in _leaves(raw) if _suspect(text)]:
        found: Any = cfg
        try:
            for part in path[:-1]:
                found = found[part]
            value = found[path[-1]]
        except OmegaConfBaseException:  # told where the configuration is resolved
            continue
        if isinstance(value, str) and (new := read(_kind_at(known(), path), value)) is not value:
            with open_dict(cfg):
                found[path[-1]] = new


def _at(values: Any, key: str) -> Any:
    """What a configuration has at a dotted key; None where it has no such key."""
    for part in key.split("."):
        values = values.get(part) if isinstance(values, dict) else None
    return values


def _suspect(text: str) -> bool:
    """Whether a text refers to something, or looks like a number, a list, a truth value or nothing."""
    return "${" in text or text[:1] in "0123456789.+-[{" or text.lower() in ("true", "false", "null", "inf", "nan")


def _leaves(inside: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], str]]:
    """Every text, with its place."""
    pairs = inside.items() if isinstance(inside, dict) else enumerate(inside) if isinstance(inside, list) else ()
    for key, value in pairs:
        yield from _leaves(value, (*path, key))
    if isinstance(inside, str) and inside:
        yield path, inside


def _kind_at(kinds: Mapping[str, Any], path: tuple[Any, ...]) -> Any:
    """The type of the key at `path`; Any where it is unknown."""
    kind = kinds.get(path[0], Any)
    for part in path[1:]:
        kind = next((one for one in _options(kind) if dataclasses.is_dataclass(one) or typing.get_origin(one)), Any)
        if dataclasses.is_dataclass(kind):
            kind = typing.get_type_hints(kind, include_extras=True).get(str(part), Any)
        else:
            kind = (typing.get_args(kind) or (Any,))[-1 if typing.get_origin(kind) is dict else 0]
    return kind


def _options(kind: Any) -> tuple[Any, ...]:
    """The types of a union; the type itself where it is none."""
    if typing.get_origin(kind) is typing.Annotated:
        return _options(typing.get_args(kind)[0])
    return typing.get_args(kind) if typing.get_origin(kind) in (typing.Union, types.UnionType) else (kind,)
