"""One composed configuration, and from it those of the other algorithms.

`vflbench list dataset=bank` asks for the configuration of every algorithm. Hydra composes one of them; in the others
the algorithm's keys, the groups that its file chooses, and its tuned values take the place of the first one's.
"""

import pickle
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import yaml
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf, open_dict

from vflbench.config import tuned
from vflbench.config.loader import NOISY, PLAIN, Loader, tuned_values
from vflbench.config.source import Source
from vflbench.types import VflbenchError

CHOICE = re.compile(r"override /(\w+)@_global_\.\1")  # of a group, in the defaults of an algorithm's file


def remember(loader: Loader, dataset: str, algorithms: Sequence[str]) -> None:
    """Let the loader know `algorithm=NAME dataset=...` of each algorithm; others are composed when they are asked for.

    Parameters
    ----------
    dataset : the option, as it is typed behind `dataset=`.
    algorithms : options with a file that has keys, and at most chooses options of other groups.
    """
    sources = [one for one in loader.get_sources() if isinstance(one, Source)]
    files = {name: found for name in algorithms if (found := _read(sources, f"algorithm/{name}"))}
    root = _read(sources, "config")
    if not files or root is None:
        return
    others = {**root[1], "dataset": dataset}
    paths = [f"{group}/{option}" for group, option in others.items() if group.isidentifier() and option]
    if not all(_is_plain(sources, path) for path in paths if path.partition("/")[0] != "algorithm"):
        return
    first = next(iter(files))
    words = [f"algorithm={first}", f"dataset={dataset}", f"{PLAIN}=none"]
    try:
        base = pickle.dumps(loader.hydras.load_configuration("config", words, RunMode.RUN))
    except Exception:  # of many kinds; it is told where the configuration is asked for
        return
    before = {group: root[1].get(group) for group in files[first][1]}  # what the first one's file has chosen
    for name, (keys, chosen) in files.items():
        cfg = pickle.loads(base)
        options = {**before, **chosen}
        own = {group: _read(sources, f"{group}/{option}") for group, option in options.items() if option is not None}
        if any(one is None or one[1] for one in own.values()) or not {"dataset", "privacy"}.isdisjoint(options):
            continue  # an option made from others, or one on which others depend
        with open_dict(cfg):
            cfg.algorithm = keys
            for group, option in options.items():
                cfg.pop(group, None)
                if (found := own.get(group)) is not None:
                    cfg[group] = found[0]
                cfg.hydra.runtime.choices[group] = option
            noise = f"{cfg.hydra.runtime.choices.privacy}/{name}/{dataset}"
            cfg.hydra.runtime.choices.update({"algorithm": name, PLAIN: f"{name}/{dataset}", NOISY: noise})
            try:
                entries = [entry for _, entry in tuned_values(cfg.hydra, sources)]
            except VflbenchError:
                continue
            if len(entries) > 1 or any("defaults" in entry.values for entry in entries):
                continue
            for entry in entries:
                for key, value in entry.values.items():
                    OmegaConf.update(cfg, key, value)
                tuned.of_this_model(cfg, entry)
        loader.known["config", (f"algorithm={name}", f"dataset={dataset}"), RunMode.RUN] = pickle.dumps(cfg)


def _is_plain(sources: Sequence[Source], path: str) -> bool:
    """Whether an option is only keys of its group; one without a file, of a plug-in, is."""
    found = _read(sources, path)
    return not found[1] if found else not any(one.is_config(path) for one in sources)


def _read(sources: Sequence[Source], path: str) -> tuple[DictConfig, dict[str, Any]] | None:
    """The keys of an option's file and the options of other groups that it chooses; None where it has more."""
    source = next((one for one in sources if one.is_config(path)), None)
    if source is None:
        return None
    try:
        loaded = source.load_config(path)
    except (yaml.YAMLError, OSError, ValueError, VflbenchError):  # told where the option is chosen
        return None
    config: Any = loaded.config
    values: Any = OmegaConf.to_container(config)
    if not isinstance(values, dict):
        return None
    config.pop("defaults", None)
    defaults = [one for one in values.get("defaults", []) if one != "_self_"]
    chosen = dict(_chosen(defaults, root=path == "config"))
    plain = loaded.header.get("package") is None and len(chosen) == len(defaults)
    return (config, chosen) if plain or path == "config" else None


def _chosen(defaults: Any, root: bool) -> Iterator[tuple[str, Any]]:
    """The groups that a list of defaults chooses, with their options."""
    for entry in defaults:
        for word, option in entry.items() if isinstance(entry, Mapping) else ():
            found = CHOICE.fullmatch(str(word))
            if root or found:
                yield found[1] if found else str(word), option
