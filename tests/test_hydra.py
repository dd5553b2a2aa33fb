"""Hydra at the door: its public interface, what is composed once, and folders of options that would run code."""

from __future__ import annotations

import ast
import contextlib
import inspect
import pickle
import sys
from pathlib import Path
from typing import Any

import pytest
from hydra.core.config_loader import ConfigLoader
from hydra.errors import HydraException
from hydra.plugins.config_source import ConfigSource
from hydra.types import RunMode
from omegaconf import OmegaConf

import vflbench
from tests.every import few_fast
from vflbench import cli, config, registry
from vflbench.cli.list import runnable
from vflbench.config import overlay
from vflbench.config.loader import Loader
from vflbench.config.source import Source
from vflbench.types import ConfigError, VflbenchError

ROOT = Path(vflbench.__file__).parent
TOY = ("algorithm=toy", "dataset=toy_graph")
PRIVATE = {"hydra._internal.callbacks": "config/hydra.py"}  # what has no public way, and where it is used


@pytest.mark.parametrize("kind", [Loader, Source])
def test_what_hydra_calls_can_be_called_as_its_own(kind: type) -> None:
    """Parts of Hydra call it, by position or by name: completion did, with a name that ours did not have."""
    base = ConfigLoader if kind is Loader else ConfigSource
    for name in base.__abstractmethods__:
        ours, theirs = (inspect.signature(getattr(one, name)).parameters for one in (kind, base))
        assert [*ours] == [*theirs] and all(ours[own].default == theirs[own].default for own in ours), name


def test_a_quoted_text_is_read_as_it_is() -> None:
    texts = [
        "${oc.env:HOME}",
        r"\${x}",
        r"a\b${y",
        "it's ${z}",
        "x\\\\${q}",
        "[a, b]",
        "a=b",
        "}$",
        " ü\n",
        "null",
        "1",
    ]
    with config.session() as hydra:
        words = ["algorithm=vfl", "dataset=tabular_files", config.quoted("dataset.files", texts)]
        words.append(config.quoted("dataset.label", texts[2]))
        read = config.plain(config.compose(hydra, words))["dataset"]
    assert (read["files"], read["label"]) == (texts, texts[2])


@pytest.mark.parametrize("mode", [pytest.param(RunMode.RUN, marks=pytest.mark.slow), RunMode.MULTIRUN])
@pytest.mark.parametrize(
    "typed",
    few_fast(
        [
            ["algorithm=vfl_sgd", "dataset=star_schema", "rounds=2", "hydra.run.dir=a b", "plot=none"],
            ["experiment=glasu/table2", "seed=3", "rounds=${seed}", "hydra.verbose=true"],
            ["+x=1", "x=2", "~x", "++y=[1,2]", "hydra.sweep.subdir=${seed}"],
            ["algorithm.lr=3", "algorithm={lr: 4}", "algorithm.lr=5"],
            ["algorithm=glasu,vfl_sgd", "seed=1,2"],
            ["hydra.job.name=other", "hydra/launcher=joblib", "hydra.launcher.n_jobs=2"],
            ["algorithm=nosuch"],
            ["rounds=[1,"],
        ],
        3,
    ),
)
def test_what_is_composed_once_is_what_hydra_composes(typed: list[str], mode: RunMode) -> None:
    def found(loader: ConfigLoader, line: list[str]) -> Any:
        try:
            return OmegaConf.to_container(loader.load_configuration("config", line, mode))
        except HydraException as error:
            return f"{error}, from {error.__cause__}"

    with config.session(typed) as session:
        sent = pickle.loads(pickle.dumps(session.loader))  # as a launcher sends it to a process
        hydras = [found(session.loader.hydras, line) for line in (typed, [*typed, "seed=4"])]
        for loader in (session.loader, sent):
            for place in (0, 1, 0):  # composed, and from what is remembered
                assert found(loader, (typed, [*typed, "seed=4"])[place]) == hydras[place]


def every_third(start: int) -> list[str]:
    return sorted(registry.algorithm_entries())[start::3]


@pytest.mark.parametrize(
    ("dataset", "algorithms"),  # each algorithm once: a data set's values are read alike for all
    [
        ("cora", ["glasu", "vfl"]),
        *(
            pytest.param(name, every_third(start), marks=pytest.mark.slow)
            for start, name in enumerate(("cora", "bank", "movielens"))
        ),
    ],
)
def test_the_configuration_of_another_algorithm_is_what_hydra_composes(dataset: str, algorithms: list[str]) -> None:
    with config.session() as session:
        overlay.remember(session.loader, dataset, algorithms)
        assert len(session.loader.known) == len(algorithms)
        for key, made in [*session.loader.known.items()]:
            composed = session.loader._compose_options(*key)
            first, second = (OmegaConf.to_container(pickle.loads(one)) for one in (made, composed))
            for one in (first, second):  # what was typed is noted later
                del one["hydra"]["overrides"], one["hydra"]["job"]["override_dirname"]
            assert first == second, key


def test_a_key_that_is_not_there_is_told_as_hydra_tells_it() -> None:
    with config.session() as session:
        told = []
        for loader in (session.loader, session.loader.hydras):
            with pytest.raises(HydraException) as error:
                loader.load_configuration("config", ["algorithm.nosuch=1"], RunMode.RUN)
            told.append((str(error.value).partition("\n")[0], str(error.value.__cause__)))
    assert told[0] == told[1]


def test_nothing_private_of_hydras_is_used_but_what_has_no_public_way() -> None:
    for path in ROOT.rglob("*.py"):
        if "hydra" not in (text := path.read_text(encoding="utf-8")):
            continue  # to parse all takes two seconds
        tree = ast.parse(text)
        named = {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
        named |= {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
        hydras, place = {name for name in named if name.partition(".")[0] == "hydra"}, path.relative_to(ROOT)
        assert all(PRIVATE.get(name) == place.as_posix() for name in hydras if "._" in name), f"{path} uses {hydras}"
        allowed = place.parts[0] == "config" or hydras <= {"hydra.core.hydra_config"}
        assert allowed, f"{path} imports {hydras}: Hydra is at the door, in config/"


# --- folders of options that would run code ---------------------------------------------------------------------------

RUN = "_target_: pathlib.Path.write_text\nself: {_target_: pathlib.Path, _args_: [OUT]}\ndata: x\n"
HANDLER = "version: 1\nhandlers: {x: {HANDLER}}\nroot: {handlers: [x]}\n"
EVIL = {  # file, its content, what is typed -> the key that is named
    "callback": ("hydra/callbacks/mine.yaml", f"x: {{{RUN.replace(chr(10), ', ')}}}", "hydra/callbacks=mine"),
    "callback in a preset": (
        "experiment/mine.yaml",
        "# @package _global_\nhydra: {callbacks: {x: {_target_: evil.run}}}",
        "experiment=mine",
    ),
    "callback behind a header": (
        "network/mine.yaml",
        "# @package hydra.callbacks\nx: {_target_: evil.run}",
        "network=mine",
    ),
    "callback by reference": (
        "experiment/mine.yaml",
        "# @package _global_\nhydra: {callbacks: '${oc.create:{x:{_target_:evil.run}}}'}",
        "experiment=mine",
    ),
    "launcher": ("hydra/launcher/mine.yaml", RUN, "hydra/launcher=mine"),
    "launcher in a preset": (
        "experiment/mine.yaml",
        "# @package _global_\nhydra: {launcher: {_target_: evil.run}}",
        "experiment=mine",
    ),
    "sweeper": ("hydra/sweeper/mine.yaml", RUN, "hydra/sweeper=mine"),
    "inside a launcher": (
        "hydra/launcher/mine.yaml",
        "_target_: hydra_plugins.hydra_joblib_launcher.joblib_launcher.JoblibLauncher\nn_jobs: {_target_: evil.run}",
        "hydra/launcher=mine",
    ),
    "inside by reference": (
        "hydra/launcher/mine.yaml",
        "_target_: hydra_plugins.hydra_joblib_launcher.joblib_launcher.JoblibLauncher\nn_jobs: ${algorithm.evil}",
        "hydra/launcher=mine",
    ),
    "commands": (
        "hydra/launcher/mine.yaml",
        "defaults: [submitit_slurm]\nsetup: [touch OUT]",
        "hydra/launcher=mine",
    ),
    "factory": ("hydra/job_logging/mine.yaml", HANDLER.replace("HANDLER", "(): evil.run"), "hydra/job_logging=mine"),
    "class": (
        "hydra/hydra_logging/mine.yaml",
        HANDLER.replace("HANDLER", "class: evil.run"),
        "hydra/hydra_logging=mine",
    ),
    "any file": (
        "hydra/job_logging/mine.yaml",
        HANDLER.replace("HANDLER", "class: logging.FileHandler, filename: OUT, mode: w"),
        "hydra/job_logging=mine",
    ),
    "a file by its job's name": (
        "experiment/mine.yaml",
        "# @package _global_\nhydra: {job: {name: ../../../OUT}, job_logging: {handlers: {x: {class: "
        "logging.FileHandler, filename: '${hydra.runtime.output_dir}/${hydra.job.name}.log'}}}}",
        "experiment=mine",
    ),
    "module": (
        "hydra/job_logging/mine.yaml",
        HANDLER.replace("HANDLER", "class: logging.StreamHandler, stream: 'ext://evil.x'"),
        "hydra/job_logging=mine",
    ),
    "environment": (
        "experiment/mine.yaml",
        "# @package _global_\nhydra: {job: {env_set: {LD_PRELOAD: OUT}}}",
        "experiment=mine",
    ),
    "folder of outputs": (
        "experiment/mine.yaml",
        "# @package _global_\nhydra: {output_subdir: ../../OUT}",
        "experiment=mine",
    ),
    "overwrite": ("experiment/mine.yaml", "# @package _global_\noverwrite: true", "experiment=mine"),
}
NAMED = {"environment": "hydra.job.env_set", "folder of outputs": "hydra.output_subdir", "overwrite": "overwrite"}
NAMED |= {
    "a file by its job's name": "hydra.job_logging",
    "launcher in a preset": "hydra.launcher",
    "commands": "hydra.launcher.setup",
}
SLURM = "defaults: [{override /hydra/launcher: submitit_slurm}]\nhydra: {launcher: {"
LOG = "class: logging.FileHandler, filename: '${hydra.runtime.output_dir}/x.log'"
PRESETS = {  # what else a preset may try -> the key that is named
    "hydra: {job_logging: {handlers: '${hydra:launcher}'}}": "hydra.job_logging",
    "hydra: {job_logging: {foo: {_target_: evil.run}}}": "hydra.job_logging",
    "hydra: {job_logging: {handlers: {console: {stream: '${oc.env:NONE,ext://evil.x}'}}}}": "hydra.job_logging",
    "hydra: {job_logging: {handlers: {console: {stream: '${now:ext://evil.x}'}}}}": "hydra.job_logging",
    "hydra: {job: {name: 'ext://evil.x'}}": "hydra.job.name",
    "hydra: {hydra_logging: {handlers: {console: {.: {baseFilename: OUT}}}}}": "hydra.hydra_logging",
    f"hydra: {{hydra_logging: {{handlers: {{x: {{{LOG}}}}}}}}}": "hydra.hydra_logging",
    f"hydra: {{job_logging: {{handlers: {{x: {{{LOG}, mode: w}}}}}}}}": "hydra.job_logging",
    "hydra: {runtime: {output_dir: OUT}}": "hydra.runtime.output_dir",
    "hydra: {sweeper: {params: {hydra.launcher.setup: '[ls]'}}}": "hydra.sweeper.params",
    "hydra: {sweeper: {params: {overwrite: true}}}": "hydra.sweeper.params",
    "overwrite: 'true'": "overwrite",
    "overwrite: ${plot}": "overwrite",
    "hydra: {job: {env_set: '${hydra.job.env_copy}'}}": "hydra.job.env_set",
    f"{SLURM}comment: 'x\n\n  touch OUT'}}}}": "hydra.launcher.comment",
    f"{SLURM}submitit_folder: OUT}}}}": "hydra.launcher.submitit_folder",
}
EVIL |= {body: ("experiment/mine.yaml", f"# @package _global_\n{body}", "experiment=mine") for body in PRESETS}
NAMED |= PRESETS
SHOWN = (["--cfg", "job"], ["--info", "config"], ["--hydra-help"], ["dry_run=true"], ["-m", "seed=1,2"], [])


@pytest.mark.parametrize(
    ("kind", "words"),  # the fast tests have each way once
    [
        pytest.param(kind, words, marks=[] if n == m else [pytest.mark.slow], id=f"{n}-{m}")
        for n, kind in enumerate(EVIL)
        for m, words in enumerate(SHOWN)
    ],
)
def test_a_folder_of_options_runs_nothing(
    toy: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    kind: str,
    words: list[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "evil.py").write_text("x = None\ndef run(**keys): raise SystemError\n")
    monkeypatch.syspath_prepend(tmp_path)
    file, text, typed = EVIL[kind]
    place = tmp_path / "options" / file
    place.parent.mkdir(parents=True)
    place.write_text(text.replace("OUT", str(tmp_path / "out")))
    key = NAMED.get(kind) or typed.partition("=")[0].replace("/", ".")
    key = "hydra.callbacks" if "callback" in kind else key
    before = sorted(tmp_path.rglob("*"))
    code = cli.command(["--config-dir", "options", *TOY, typed, *words])
    err = capsys.readouterr().err
    assert code == 1 and key in err and "Traceback" not in err, err
    assert sorted(tmp_path.rglob("*")) == before
    assert "evil" not in sys.modules


def test_what_a_configuration_may_name_is_taken(toy: None, tmp_path: Path) -> None:
    place = tmp_path / "hydra/job_logging/mine.yaml"
    place.parent.mkdir(parents=True)
    place.write_text(
        "version: 1\nformatters: {plain: {(): colorlog.ColoredFormatter, format: '%(message)s'}}\n"
        "handlers:\n  x: {class: logging.StreamHandler, stream: ext://sys.stderr, formatter: plain}\n"
        "  y: {class: logging.FileHandler, filename: '${hydra.runtime.output_dir}/${hydra.job.name}.log'}\n"
        "root: {level: INFO, handlers: [x, y]}\n"
    )
    with config.session(TOY, tmp_path) as hydra:
        for more in ([], ["hydra/launcher=joblib"], ["hydra/launcher=submitit_slurm", "hydra.launcher.setup=[ls]"]):
            assert config.compose(hydra, [*TOY, "hydra/job_logging=mine", *more])
        with contextlib.suppress(ConfigError):
            assert not config.compose(hydra, [*TOY, "+hydra.launcher.x={_target_:evil.run}"])


@pytest.mark.parametrize(
    "text",
    [
        "presets:\n  'mine/one': {seed: 3}\n  mine/two: {}\n",
        "presets: {mine/one: {seed: 3}, mine/two: {}}\n",
        "\ufeffpresets:\n  mine/one:\n    seed: 3\n  mine/two:\n",
    ],
)
def test_a_preset_may_be_written_in_any_way_of_yaml(text: str, tmp_path: Path) -> None:
    (tmp_path / "figure/mine").mkdir(parents=True)
    (tmp_path / "figure/mine/one.yaml").write_text(text, encoding="utf-8")
    (tmp_path / "figure/mine/two.yaml").write_text(text, encoding="utf-8")
    source = Source("mine", f"vflbench://{tmp_path}")
    assert source.list("experiment/mine", None) == ["one", "two"]
    assert source.load_config("experiment/mine/one").config == {"seed": 3}
    assert source.load_config("experiment/mine/two").config == {}


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16"])
def test_a_figure_that_is_not_utf_8_stops_only_what_reads_it(encoding: str, tmp_path: Path) -> None:
    (tmp_path / "figure/mine").mkdir(parents=True)
    (tmp_path / "figure/mine/one.yaml").write_text("title: café\npresets:\n  mine/one: {seed: 3}\n", encoding=encoding)
    (tmp_path / "figure/mine/two.yaml").write_text("presets:\n  mine/two: {seed: 4}\n")
    for words in (["experiment=mine/two"], ["experiment=glasu/table4"], ["algorithm=vfl", "dataset=bank"]):
        with config.session(words, tmp_path) as hydra:
            assert config.plan(hydra, words, loading=False)
    with (
        config.session(["experiment=mine/one"], tmp_path) as hydra,
        pytest.raises(VflbenchError, match=r"one\.yaml: is no text in UTF-8"),
    ):
        config.plan(hydra, ["experiment=mine/one"], loading=False)


@pytest.mark.parametrize(
    ("file", "text", "kept"),
    [
        ("network/us_uk.yaml", "# @package _global_\nalgorithm: {lr: 3}\n", set()),
        ("codec/none.yaml", "defaults: [topk]\nname: none\n", set()),
        ("algorithm/vfl.yaml", "defaults: [_self_, override /dataset@_global_.dataset: bank]\nname: vfl\n", {"avfl"}),
        ("algorithm/vfl.yaml", "a: [", {"avfl"}),
        ("algorithm/vfl.yaml", "[1, 2]", {"avfl"}),
        ("tuned/vfl.yaml", "bank: {defaults: [{/codec: topk}]}\n", {"avfl"}),
        ("tuned/vfl.yaml", "[1, 2]", {"avfl"}),
    ],
)
def test_what_only_hydra_can_compose_is_left_to_it(file: str, text: str, kept: set[str], tmp_path: Path) -> None:
    (tmp_path / file).parent.mkdir()
    (tmp_path / file).write_text(text)
    with config.session(user_dir=tmp_path) as session:
        overlay.remember(session.loader, "bank", ["avfl", "vfl"])
        assert {words[0] for _, words, _ in session.loader.known} == {f"algorithm={name}" for name in kept}


@pytest.mark.slow
@pytest.mark.parametrize("text", ["a: [", "[1, 2]"])
def test_a_file_that_is_wrong_leaves_out_its_algorithm_only(text: str, tmp_path: Path) -> None:
    (tmp_path / "algorithm").mkdir()
    (tmp_path / "algorithm/avfl.yaml").write_text(text)
    found = runnable(["dataset=digits"], str(tmp_path))
    assert "vfl" in found and "avfl" not in found
