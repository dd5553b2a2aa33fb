"""What a configuration may do: choose and set. Nothing in a folder of options runs code.

Hydra makes an object of what a `_target_` names, `logging` of what `class`, `()` and `ext://` name, callbacks are
called at every step, and a launcher may run commands. A folder that somebody shares must not do that with a user's
rights. So the node `hydra` of every composed configuration is checked before Hydra acts by it: whoever wrote it, and
whatever it refers to.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from hydra.core.plugins import Plugins
from hydra.plugins.launcher import Launcher
from hydra.plugins.sweeper import Sweeper
from omegaconf import DictConfig, OmegaConf

from vflbench.config.launching import OWN_LAUNCHER
from vflbench.types import Problem, refuse

CLASSES = (
    *("logging.StreamHandler", "logging.FileHandler", "logging.NullHandler", "logging.Formatter", "logging.Filter"),
    *("colorlog.ColoredFormatter", "vflbench.results.texts.Formatter"),
)  # that logging may make objects of
STREAMS = ("ext://sys.stderr", "ext://sys.stdout")
INSIDE = "${hydra.runtime.output_dir}/"  # the run's folder, where the file of a log must be
# Keys of launchers and sweepers that name commands or functions -> what they are by default.
COMMANDS: dict[str, Any] = dict.fromkeys(("setup", "python", "srun_args", "custom_search_space"))
COMMANDS |= {"additional_parameters": {}, "pre_dispatch": "2*n_jobs"}
ENVIRONMENT = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "CUDA_VISIBLE_DEVICES")
# What Hydra's own nodes may refer to: each of these is a text or a number, and stays that.
PLAIN = re.compile(r"\$\{(hydra\.(job|run|sweep|runtime)\.[\w.]+|hydra:[\w.@/]+|now:[^${}]*|oc\.env:[^${}]*)\}")


def check(cfg: DictConfig) -> None:
    """Raise ConfigError, with all problems, where a composed configuration would run code or write files elsewhere."""
    refuse(list(_problems(cfg)))


def _problems(cfg: DictConfig) -> Iterator[Problem]:
    parts: Any = OmegaConf.to_container(cfg.hydra)
    typed = {word.lstrip("+").partition("=")[0] for words in parts["overrides"].values() for word in words}
    for name, kind in (("launcher", Launcher), ("sweeper", Sweeper)):
        yield from _object_problems(f"hydra.{name}", parts[name], kind, typed)
    if parts["callbacks"]:
        yield Problem("hydra.callbacks", _shown(parts["callbacks"]), "callbacks run code: vflbench takes none")
    for name in ("job_logging", "hydra_logging"):
        yield from _logging_problems(f"hydra.{name}", parts[name], str(parts["job"].get("name")))
    for name, value in parts["job"]["env_set"].items():
        if name not in ENVIRONMENT:
            allowed = f"may not be set by a configuration, which may set: {', '.join(ENVIRONMENT)}"
            yield Problem(f"hydra.job.env_set.{name}", value, allowed)
    if parts["output_subdir"] is not None:
        yield Problem("hydra.output_subdir", parts["output_subdir"], "must be null: vflbench writes .hydra itself")
    if cfg.get("overwrite") is True and "overwrite" not in typed:
        yield Problem("overwrite", "true", "replaces a run only where it is typed, not by an option file")


def _object_problems(key: str, node: Any, kind: Any, typed: set[str]) -> Iterator[Problem]:
    """What is wrong with the node of a launcher or sweeper, of which Hydra makes an object."""
    if not isinstance(node, Mapping):
        yield Problem(key, _shown(node), f"must have the keys of a {kind.__name__.lower()}")
        return
    if str(node.get("_target_")).endswith(".BasicSweeper"):
        node = {name: value for name, value in node.items() if name != "params"}  # overrides: no object is made of them
    registered = [f"{one.__module__}.{one.__name__}" for one in Plugins.instance().discover(kind)]
    for path, value in _leaves(node, key):
        leaf = path.rpartition(".")[2]
        if leaf == "_target_":
            known = value in (*registered, OWN_LAUNCHER) or str(value).startswith("hydra_plugins.")  # of these Hydra
            if not known or path != f"{key}._target_":  # starts what is registered
                yield Problem(
                    path, _shown(value), f"names no registered {kind.__name__.lower()}, and nothing else runs"
                )
        elif isinstance(value, str) and "${" in PLAIN.sub("", value):
            yield Problem(path, value, "may refer to the environment, the time and ${hydra.job...} alone")
    for leaf, default in COMMANDS.items():
        if node.get(leaf, default) not in (default, None) and not any(one.startswith(f"{key}.{leaf}") for one in typed):
            yield Problem(f"{key}.{leaf}", _shown(node[leaf]), "runs what it says: type it, an option file may not")


def _logging_problems(key: str, node: Any, job: str) -> Iterator[Problem]:
    """What is wrong with a configuration of logging; `job` is hydra.job.name."""
    for path, value in _leaves(node, key):
        leaf, text = path.rpartition(".")[2], str(value)
        if leaf in ("class", "()"):
            if text not in CLASSES:
                yield Problem(path, text, f"may be {', '.join(CLASSES)}")
        elif leaf == "filename":
            name = text.removeprefix(INSIDE).replace("${hydra.job.name}", job)
            if name == text or not re.fullmatch(r"[^/\\$]+\.log", name):
                yield Problem(path, text, f"must be in the run's folder: {INSIDE}NAME.log")
        elif "${" in PLAIN.sub("", text):
            yield Problem(path, text, "may refer to the environment, the time and ${hydra.job...} alone")
        elif text.startswith(("ext://", "cfg://")) and text not in STREAMS:
            yield Problem(path, text, f"may be {' or '.join(STREAMS)}")


def _leaves(node: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Every value below a node with its key; a node that is no mapping is one itself."""
    pairs = node.items() if isinstance(node, Mapping) else enumerate(node) if isinstance(node, list) else None
    if pairs is None:
        yield path, node
    for name, value in pairs or ():
        yield from _leaves(value, f"{path}.{name}")


def _shown(value: Any) -> str:
    """A value in one line."""
    return " ".join(str(value).split())
