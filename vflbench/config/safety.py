"""What a configuration may do: choose and set. Nothing in a folder of options runs code.

Hydra makes an object of what a `_target_` names, and `logging` of what `class`, `()` and `ext://` name. Callbacks are
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
# Keys of launchers and sweepers that name commands, functions or folders -> what they are by default.
TYPED: dict[str, Any] = dict.fromkeys(("setup", "python", "srun_args", "custom_search_space", "temp_folder"))
TYPED |= {"additional_parameters": {}, "pre_dispatch": "2*n_jobs", "submitit_folder": "${hydra.sweep.dir}/.submitit/%j"}
ENVIRONMENT = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "CUDA_VISIBLE_DEVICES")
# What a launcher or sweeper may refer to: each of these is a text or a number, and nothing makes a mapping of it.
PLAIN = re.compile(r"\$\{(hydra\.(job\.(name|num|id)|(run|sweep)\.dir)|now:(%[A-Za-z]|[-_:. ])*|oc\.env:\w+)\}")
REFERS = "may refer to variables of the environment, the time, hydra.job.name and hydra.sweep.dir alone"


def check(cfg: DictConfig) -> None:
    """Raise ConfigError, with all problems, where a composed configuration would run code or write files elsewhere."""
    refuse(list(_problems(cfg)))


def _problems(cfg: DictConfig) -> Iterator[Problem]:
    parts: Any = OmegaConf.to_container(cfg.hydra)
    typed = {word.lstrip("+").partition("=")[0] for words in parts["overrides"].values() for word in words}
    for path, value in _leaves({key: one for key, one in parts.items() if key != "overrides"}, "hydra"):
        special = [key for key in path.split("\0")[1:] if key.startswith("_") or key in ("()", ".")]
        known = path in ("hydra\0launcher\0_target_", "hydra\0sweeper\0_target_") or (
            special == ["()"] and path.split("\0")[1] in ("job_logging", "hydra_logging")
        )
        if special and not known:
            yield Problem(path.replace("\0", "."), _shown(value), "makes an object or sets its attributes")
    for name, kind in (("launcher", Launcher), ("sweeper", Sweeper)):
        yield from _object_problems(f"hydra.{name}", parts[name], kind, typed)
    if parts["callbacks"]:
        yield Problem("hydra.callbacks", _shown(parts["callbacks"]), "callbacks run code: vflbench takes none")
    for name in ("job_logging", "hydra_logging"):
        yield from _logging_problems(f"hydra.{name}", parts[name], str(parts["job"].get("name")))
    yield from _job_problems(parts)
    if "overwrite" not in typed and (OmegaConf.is_interpolation(cfg, "overwrite") or cfg.get("overwrite") is not False):
        yield Problem("overwrite", _shown(cfg.get("overwrite")), "replaces a run only where it is typed")


def _job_problems(parts: Mapping[str, Any]) -> Iterator[Problem]:
    """What is wrong with Hydra's keys of a job."""
    name, variables = parts["job"].get("name"), parts["job"]["env_set"]
    if not isinstance(name, str) or not re.fullmatch(r"[\w. -]+", name):
        yield Problem("hydra.job.name", _shown(name), "must be a word: it names files")
    for variable, value in variables.items() if isinstance(variables, Mapping) else [("", variables)]:
        if variable not in ENVIRONMENT:
            allowed = f"may not be set by a configuration, which may set: {', '.join(ENVIRONMENT)}"
            yield Problem(f"hydra.job.env_set.{variable}".rstrip("."), _shown(value), allowed)
    if parts["output_subdir"] is not None:
        yield Problem("hydra.output_subdir", parts["output_subdir"], "must be null: vflbench writes .hydra itself")
    if (place := parts["runtime"].get("output_dir", "???")) != "???":
        yield Problem("hydra.runtime.output_dir", _shown(place), "is hydra.run.dir's: set that")


def _object_problems(key: str, node: Any, kind: Any, typed: set[str]) -> Iterator[Problem]:
    """What is wrong with the node of a launcher or sweeper, of which Hydra makes an object."""
    if not isinstance(node, Mapping):
        yield Problem(key, _shown(node), f"must have the keys of a {kind.__name__.lower()}")
        return
    target = node.get("_target_")
    registered = [f"{one.__module__}.{one.__name__}" for one in Plugins.instance().discover(kind)]
    if target not in (*registered, OWN_LAUNCHER) and not str(target).startswith("hydra_plugins."):
        yield Problem(f"{key}._target_", _shown(target), f"names no registered {kind.__name__.lower()}")
    for path, value in _leaves(node, key):
        words, name = path.split("\0")[1:], path.replace("\0", ".")
        if "params" not in words and name not in typed and isinstance(value, str) and "${" in PLAIN.sub("", value):
            yield Problem(name, value, REFERS)
        if isinstance(value, str) and not value.isprintable():
            yield Problem(name, _shown(value), "has a character that no text may have: a break, or a control character")
        if any(re.match(r"[+~]*(hydra\b|overwrite$)", word) for word in words):
            yield Problem(name, _shown(value), "may be typed, and may not be in an option file")
    for leaf, default in TYPED.items():
        own = any(word.startswith(f"{key}.{leaf}") for word in typed)
        if not own and node.get(leaf, default) not in (default, None):
            yield Problem(f"{key}.{leaf}", _shown(node[leaf]), "names what runs, or a folder: type it")


def _logging_problems(key: str, node: Any, job: str) -> Iterator[Problem]:
    """What is wrong with a configuration of logging; `job` is hydra.job.name."""
    for path, value in _leaves(node, key):
        leaf, name, text = path.rpartition("\0")[2], path.replace("\0", "."), str(value)
        if leaf in ("class", "()"):
            if text not in CLASSES or (text == "logging.FileHandler" and key == "hydra.hydra_logging"):
                yield Problem(name, text, f"may be {', '.join(CLASSES)}; a file in job_logging alone")
        elif leaf == "filename":
            file = text.removeprefix(INSIDE).replace("${hydra.job.name}", job)
            if file == text or not re.fullmatch(r"[^/\\$]+\.log", file):
                yield Problem(name, text, f"must be in the run's folder: {INSIDE}NAME.log")
        elif leaf == "mode" and text != "a":
            yield Problem(name, text, "must be a: a log is added to")
        elif "${" in text:
            yield Problem(name, text, "must say what it means: logging may refer to nothing but the name of its file")
        elif text.startswith(("ext://", "cfg://")) and text not in STREAMS:
            yield Problem(name, text, f"may be {' or '.join(STREAMS)}")


def _leaves(node: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Every value below a node with its keys, NUL between them; a node that is no mapping is one itself."""
    pairs = node.items() if isinstance(node, Mapping) else enumerate(node) if isinstance(node, list) else ()
    if not pairs and node not in ({}, []):
        yield path, node
    for name, value in pairs:
        yield from _leaves(value, f"{path}\0{name}")


def _shown(value: Any) -> str:
    """A value in one line."""
    return " ".join(str(value).split())
