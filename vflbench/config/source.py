"""The option files of a folder, as Hydra asks for them: our plug-in of its kind `ConfigSource`.

Beside plain files it finds tuned values in the file of their algorithm (tuned.py), and a preset in the file of
its figure: `experiment=glasu/table4_more` is in figure/glasu/table4.yaml, below `presets:`. What a file says is read
once: Hydra parses some 25 files for each configuration.
"""

import contextlib
import functools
import io
import os
import pickle
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml
from hydra.core.object_type import ObjectType
from hydra.plugins.config_source import ConfigLoadError, ConfigResult, ConfigSource
from omegaconf import DictConfig, OmegaConf

from vflbench.config import tuned
from vflbench.defaults import presets
from vflbench.types import VflbenchError

SCHEME = "vflbench"
GLOBAL: dict[str, str | None] = {"package": "_global_"}  # of tuned values and presets, which have keys of any group


class Source(ConfigSource):
    """The options in one folder; `provider` is Hydra's word for whose they are."""

    def __init__(self, provider: str, path: str) -> None:
        super().__init__(provider, path)
        self.folder = Path(self.path)

    @staticmethod
    def scheme() -> str:
        """What paths of these sources begin with, before `://`."""
        return SCHEME

    def available(self) -> bool:
        """Whether the folder is there."""
        return self.folder.is_dir()

    def file(self, config_path: str) -> Path | None:
        """The file that has the option `group/option`; None where there is none."""
        group, _, name = config_path.partition("/")
        plain = self.folder / self._normalize_file_name(config_path)
        if plain.is_file() and group != "tuned":
            return plain
        if found := self.found(config_path):
            return found.file
        return self._figure(name) if group == "experiment" else None

    def found(self, config_path: str) -> tuned.Entry | None:
        """The tuned values behind `tuned/ALGORITHM/DATASET/PRIVACY`, where they are in this folder."""
        group, _, name = config_path.partition("/")
        return tuned.find(self.folder, name) if group == "tuned" else None

    def load_config(self, config_path: str) -> ConfigResult:
        """The option, a copy each time: Hydra changes what it gets."""
        file, text, header = self._text(config_path)
        if found := self.found(config_path):
            config = OmegaConf.create()
            for key, value in found.values.items():
                OmegaConf.update(config, key, value)
        else:
            config = parsed(str(file), text)
        return ConfigResult(self.provider, self.full_path(), config, header)

    def contents(self, config_path: str) -> tuple[dict[str, Any], dict[str, str | None]]:
        """The option as dicts and lists, of which only the outermost may be changed; and its header."""
        file, text, header = self._text(config_path)
        found = self.found(config_path)
        return dict(found.values if found else _contents(str(file), text)), header

    def _text(self, config_path: str) -> tuple[Path, str, dict[str, str | None]]:
        """The file of an option, what it says of that, and the header."""
        file, (group, _, name) = self.file(config_path), config_path.partition("/")
        if file is None:
            raise ConfigLoadError(f"Config not found : {self.folder / config_path}")
        text = text_of(file)
        if group == "tuned":
            return file, text, {**GLOBAL}
        if group == "experiment" and file != self.folder / self._normalize_file_name(config_path):
            return file, presets(text)[name], {**GLOBAL}
        return file, text, self._get_header_dict(text[:512])

    def is_config(self, config_path: str) -> bool:
        """Whether there is the option `group/option`."""
        return self.file(config_path.removesuffix(".yaml")) is not None

    def is_group(self, config_path: str) -> bool:
        """Whether there is the group, or a folder of options below one."""
        group, _, paper = config_path.partition("/")
        if config_path == f"tuned/{tuned.PRIVATE}":  # its options are entries of files in the folder above
            return (self.folder / group).is_dir()
        inside = group == "experiment" and (self.folder / "figure" / paper).is_dir()
        return inside or (self.folder / config_path).is_dir()

    def options(self, group: str) -> list[str]:
        """Every option of a group, those in folders below it as `folder/option`, sorted."""
        inner = self.list(group, ObjectType.GROUP)
        below = [f"{folder}/{name}" for folder in inner for name in self.options(f"{group}/{folder}")]
        return sorted([*self.list(group, ObjectType.CONFIG), *below])

    def list(self, config_path: str, results_filter: ObjectType | None) -> list[str]:
        """The options and groups in a group, sorted; of one of both kinds where `results_filter` says so."""
        files, place = list[str](), self.folder / config_path
        for name in os.listdir(place) if place.is_dir() else ():
            self._list_add_result(files, os.path.join(config_path, name), name, results_filter)
        group, _, paper = config_path.partition("/")
        if group == "experiment" and (inside := self.folder / "figure" / paper).is_dir():
            if results_filter is not ObjectType.GROUP:
                written = {name for file in inside.glob("*.yaml") for name in self._presets(file)}
                files += [name.rpartition("/")[2] for name in written if self._figure(name)]
            if results_filter is not ObjectType.CONFIG:
                files += [one.name for one in inside.iterdir() if one.is_dir()]
        return sorted(set(files))

    def _figure(self, preset: str) -> Path | None:
        """The figure's file with the preset `paper/name`: that of its name, else one that the name begins with."""
        paper, _, name = preset.rpartition("/")
        while name:
            file = self.folder / "figure" / paper / f"{name}.yaml"
            if file.is_file() and preset in self._presets(file):
                return file
            name = name.rpartition("_")[0]
        return None

    def _presets(self, file: Path) -> Iterable[str]:
        """The presets in a figure's file; of one that is not UTF-8 that of its name, and who loads that is told why."""
        try:
            return presets(text_of(file))
        except VflbenchError:
            return [file.relative_to(self.folder / "figure").with_suffix("").as_posix()]


def text_of(file: Path) -> str:
    """What a file says. Raises VflbenchError where it is not UTF-8."""
    try:
        return file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise VflbenchError(f"{file}: is no text in UTF-8: {error}") from None


def parsed(file: str, text: str) -> DictConfig:
    """The content of a file as OmegaConf reads it."""
    config: DictConfig = pickle.loads(_parsed(file, text))
    return config


@functools.lru_cache(maxsize=1024)
def _contents(file: str, text: str) -> dict[str, Any]:
    found: Any = OmegaConf.to_container(parsed(file, text))
    return dict(found)


@functools.lru_cache(maxsize=1024)
def _parsed(file: str, text: str) -> bytes:
    with contextlib.suppress(yaml.YAMLError, ValueError, RecursionError):  # told below, in OmegaConf's words
        if isinstance(found := yaml.load(text, tuned.FastLoader), dict):
            return pickle.dumps(OmegaConf.create(found))
    stream = io.StringIO(text)
    stream.name = file  # errors in it name it
    return pickle.dumps(OmegaConf.load(stream))
