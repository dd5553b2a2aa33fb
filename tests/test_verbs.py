"""Every verb takes every option of `examples/`, and an option of each group from a `--config-dir`, called anything."""

from __future__ import annotations

import shutil
from pathlib import Path

import pandas as pd
import pytest
import yaml

import vflbench
from tests.every import few_fast
from vflbench import cli
from vflbench.cli import crash
from vflbench.cli.completion import candidates
from vflbench.config import tuned
from vflbench.results import reader

REPOSITORY = Path(__file__).resolve().parents[1]
EXAMPLES = REPOSITORY / "examples"
#: every option of examples/, in whatever folder: a new one is tried too
SHOWN = sorted(path.relative_to(EXAMPLES).with_suffix("").as_posix() for path in EXAMPLES.glob("*/**/*.yaml"))
DATA = [option.removeprefix("dataset/") for option in SHOWN if option.startswith("dataset/")]
SHORT = ["rounds=1", "floor=none", "plot=none", "engine.threads=1"]
#: group -> an option of vflbench's own, which a file of the user's gives another name; and what is typed beside it
OWN: dict[str, tuple[str, list[str]]] = {
    "algorithm": ("vfl_sgd", []),
    "dataset": ("digits", []),
    "model": ("linear", ["algorithm=vfl_sgd"]),
    "network": ("lan", []),
    "topology": ("star", []),
    "privacy": ("label_dp", []),
    "codec": ("topk", ["algorithm=vfl"]),
    "protection": ("paillier", ["algorithm=hetero_lr", "dataset=patients"]),
    "attack": ("label_inference", ["algorithm=vfl"]),
    "broker": ("embedded", []),
    "logger": ("csv", []),
    "compute": ("reference", []),
    "engine": ("simulated", []),
}
ASKED = ("dataset", "network", "topology", "privacy", "protection", "compute", "engine")  # groups of a question


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder as a fresh clone is, with a folder of options beside."""
    shutil.copytree(EXAMPLES, tmp_path / "examples")
    for group, (option, _) in OWN.items():
        file = tmp_path / "own" / group / "mine.yaml"
        file.parent.mkdir(parents=True)
        file.write_text(yaml.safe_dump({"defaults": [option]}))
    shutil.copy(EXAMPLES / "dataset" / "patients.yaml", tmp_path / "own" / "dataset")
    preset = tmp_path / "own" / "experiment" / "mine.yaml"
    preset.parent.mkdir()
    preset.write_text("# @package _global_\ndefaults:\n  - override /dataset: mine\nseed: 3\n")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("VFLBENCH_DATA", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def well(*words: str, code: int = 0) -> None:
    assert cli.command(words) == code, " ".join(words)


def beside(group: str) -> list[str]:
    """The method and the data for an option of a group, where it says neither."""
    said = [*OWN.get(group, ("", []))[1], *([f"{group}="] if group != "experiment" else ["dataset="])]
    return [
        *OWN.get(group, ("", []))[1],
        *(
            word
            for word in ("algorithm=vfl_sgd", "dataset=digits")
            if not any(word.split("=")[0] in one for one in said)
        ),
    ]


# --- examples/ --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("option", SHOWN)
def test_what_the_examples_show_is_checked_composed_and_offered(
    option: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`--cfg`, `list`, `privacy`, completion: of every option of examples/, in a second."""
    group, name = option.split("/", 1)
    well("--config-dir", "examples", f"{group}={name}", "algorithm=vfl", "--cfg", "job", "hydra.mode=RUN")
    assert f"{group}={name}" in candidates(f"vflbench --config-dir examples {group}={name[:2]}")
    well("privacy", "--config-dir", "examples", "algorithm=vfl", f"{group}={name}")
    if group == "dataset":
        well("list", "--config-dir", "examples", f"dataset={name}")
        well("--config-dir", "examples", f"dataset={name}", "algorithm=vfl_sgd", "dry_run=true")
    assert crash.BEGIN not in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("name", DATA)
def test_every_verb_takes_the_data_of_the_examples(name: str, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["--config-dir", "examples", f"dataset={name}"]
    well(*given, "algorithm=vfl_sgd", "hydra.run.dir=one", *SHORT)
    well("-m", *given, "algorithm=vfl_sgd", "seed=0,1", "hydra.sweep.dir=many", *SHORT)
    question = [*given, "rounds=1", "trials=1", "engine.threads=1"]
    assert cli.command(["choose", *question, "algorithm=vfl_sgd,send_once", "target=0.3", "out=asked"]) in (0, 2)
    well("tune", *question, "algorithm=vfl_sgd", "--out", "examples")
    assert name in tuned.read(Path("examples/tuned/vfl_sgd.yaml"))
    well(*given, "algorithm=vfl_sgd", "hydra.run.dir=tuned", *SHORT)
    assert reader.load(Path("tuned")).manifest["choices"]["tuned@_global_"] == f"vfl_sgd/{name}"
    well("report", "one", "many", "--out", "page.html")
    well("report", "one", "--rerun", "lan", "--out", "moved.html")
    well("reprice", "one", "network=us_us", "--out", "priced")
    well("show", "one", "many")
    well("plot", "one", "many")
    well("data", "status")
    capsys.readouterr()


@pytest.mark.slow
@pytest.mark.parametrize("name", DATA)
def test_python_takes_the_data_of_the_examples(name: str, place: Path) -> None:
    given = [f"dataset={name}", "rounds=1", "engine.threads=1"]
    one = vflbench.run([*given, "algorithm=vfl_sgd", "floor=none"], config_dir="examples")
    assert len(vflbench.report([one]).html()) and vflbench.reprice([one], "us_us")
    asked = [*given, "trials=1", "algorithm=vfl_sgd"]
    assert isinstance(vflbench.choose([*asked, "target=0.3"], config_dir="examples").table, pd.DataFrame)
    assert name in tuned.read(vflbench.tune(asked, out="to", config_dir="examples").file)
    assert vflbench.load("outputs")


@pytest.mark.slow
@pytest.mark.parametrize("option", [option for option in SHOWN if option.startswith("experiment/")])
def test_a_preset_of_the_examples_sweeps(option: str, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = option.removeprefix("experiment/")
    well("--config-dir", "examples", f"experiment={name}", "scale=smoke", "seed=0", "floor=none", "engine.threads=1")
    (made,) = Path("outputs").glob("*/")
    well("report", str(made), "--out", "page.html")
    capsys.readouterr()


# --- an option of each group ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("group", few_fast(sorted([*OWN, "experiment"], key=lambda group: group != "model")))
def test_an_own_option_of_each_group_is_checked_and_offered(
    group: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--config-dir", "own", f"{group}=mine", *beside(group)]
    well("privacy", *words)
    well(*words, "dry_run=true")
    assert f"{group}=mine" in candidates(f"vflbench --config-dir own {group}=mi")
    if group == "dataset":
        well("list", *words[:3])
    assert crash.BEGIN not in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("group", [*OWN, "experiment"])
def test_every_verb_takes_an_own_option_of_each_group(
    group: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--config-dir", "own", f"{group}=mine", *beside(group)]
    well(*words, "hydra.run.dir=one", *SHORT)
    well("-m", *words, "seed=0,1", "hydra.sweep.dir=many", *SHORT)
    well("report", "one", "many", "--out", "page.html")
    well("show", "one")
    well("plot", "one")
    if group == "network":
        well("reprice", "one", "network=mine", "--config-dir", "own", "--out", "priced")
    asked = [*words, "rounds=1", "trials=1", "engine.threads=1"]
    if group in (*ASKED, "algorithm"):
        assert cli.command(["choose", *asked, "target=0.3", "out=asked"]) in (0, 2)
    if group in (*ASKED, "algorithm", "model", "codec"):
        well("tune", *asked, "--out", "to")
    assert crash.BEGIN not in capsys.readouterr().err


@pytest.mark.slow
def test_a_figure_takes_an_own_option(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    well("figures", "glasu/table3", "--config-dir", "own", "network=mine", "scale=smoke", "dataset.source=synthetic")
    assert all(run.manifest["choices"]["network"] == "mine" for run in reader.find("outputs/figures"))
    assert cli.command(["figures", "glasu/table3", "--config-dir", "nowhere", "scale=smoke"]) == 1
    assert "--config-dir nowhere: there is no such folder" in capsys.readouterr().err
