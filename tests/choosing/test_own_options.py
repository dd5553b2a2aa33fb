"""Options of a user's folder in a question: their files may be called anything."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.every import few_fast
from vflbench import config, registry
from vflbench.choosing import baselines, candidates, question, spaces
from vflbench.choosing.record import Method, Record, Trial
from vflbench.cli import tune
from vflbench.types import ConfigError, VflbenchError

REPOSITORY = Path(__file__).resolve().parents[2]
EXAMPLES = str(REPOSITORY / "examples")


def asked(words: str, folder: Path | str) -> question.Question:
    return question.parse(["target=0.8", "trials=1", *words.split()], "choose", str(folder))


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(REPOSITORY)  # paths in the examples are relative to it
    files = {
        "algorithm/mine.yaml": "defaults: [vfl]\nname: vfl\nlr: 0.02\n",
        "algorithm/lost.yaml": "name: vfll\n",
        "dataset/of/ours.yaml": "name: digits\n",
        "codec/few.yaml": "name: topk\nfraction: 0.1\n",
        "search/mine.yaml": "codec: [none, few, int8]\nmodel: [vertical, split_mlp]\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.mark.parametrize(
    "path", few_fast(sorted((REPOSITORY / "examples" / "dataset").glob("*.yaml"))), ids=lambda path: path.stem
)
def test_every_data_set_of_the_examples_is_known_by_its_own_name(path: Path, own: Path) -> None:
    one = asked(f"dataset={path.stem} algorithm=vfl_sgd", EXAMPLES)
    assert one.dataset == path.stem and one.data is not None and one.data.name in ("tabular_files", "sql")
    methods, _ = candidates.enter(one)
    assert [method.name for method in methods] == ["vfl_sgd"]
    record = Record(one.asked(), methods=methods)
    assert not list(baselines.tasks(record, one, Path("x")))  # tables: trees are the reference


@pytest.mark.slow
def test_an_algorithm_of_the_users_enters_by_its_option(own: Path) -> None:
    methods, excluded = candidates.enter(asked("dataset=of/ours algorithm=mine,vfl", own))
    assert [(one.algorithm, one.registered) for one in methods] == [("mine", "vfl"), ("vfl", "vfl")] and not excluded
    assert methods[0].words[0] == "algorithm=mine" and "dataset=of/ours" in methods[0].words
    assert methods[0].space == {"codec": ["none", "few", "int8"], "model": ["vertical", "split_mlp"]}
    assert "algorithm.lr" in methods[1].space
    assert "algorithm.lr" in spaces.read("other", str(own), "vfl")  # without a space of its own: that of its method


def test_tuned_values_go_where_the_options_are_looked_for(own: Path) -> None:
    words = ["algorithm=mine", "dataset=of/ours", "trials=1"]
    place = tune.ask(words, str(own / "to"), str(own))[1]
    assert (place.file, place.entry) == (own / "to/tuned/mine.yaml", "of/ours")
    assert place.trials == own / "to/tuned/mine.csv"
    assert tune.ask(words, None, str(own))[1].trials == registry.config_dir().parent / "docs/results/tuning/mine.csv"


def test_values_that_exist_already_are_kept(own: Path) -> None:
    """Those of an older vflbench, in a file of their own, too; those of other noise are others."""
    words, to = ["algorithm=vfl", "dataset=of/ours", "trials=1"], own / "to"
    older = to / "tuned" / "private" / "gdp_embedding" / "vfl" / "of" / "ours.yaml"
    older.parent.mkdir(parents=True)
    older.write_text("# @package _global_\nalgorithm:\n  lr: 0.5\n")
    (to / "tuned" / "vfl.yaml").write_text("of/ours/label_rr:\n  algorithm.lr: 0.5\n")
    tune.ask(words, str(to), str(own))
    for mechanism in ("gdp_embedding", "label_rr"):
        noisy = [*words, f"privacy={mechanism}"]
        with pytest.raises(VflbenchError, match=f"of/ours/{mechanism} already exists: replace it with overwrite=true"):
            tune.ask(noisy, str(to), str(own))
        tune.ask([*noisy, "overwrite=true"], str(to), str(own))


def test_a_data_set_named_as_an_entry_with_noise_is_refused(own: Path) -> None:
    """The entry `of/ours/label_dp` holds the values for of/ours with privacy=label_dp."""
    (own / "dataset/of/ours").mkdir()
    (own / "dataset/of/ours/label_dp.yaml").write_text("name: digits\n")
    asked, _ = tune.ask(["algorithm=vfl", "dataset=of/ours/label_dp", "trials=1"], str(own / "to"), str(own))
    told = "dataset=of/ours/label_dp: ends in the name of a mechanism"
    with pytest.raises(ConfigError, match=told):
        candidates.enter(asked)
    words = ["algorithm=vfl", "dataset=of/ours/label_dp"]
    with config.session(words, own) as hydra, pytest.raises(ConfigError, match=told):
        config.plan(hydra, words)


HEADING = ",".join(tune.TRIALS)
OURS, BANK = (
    "of/ours,,0,yes,lr=1,auroc,0.9,1,2,completed,0,,\n",
    'bank,,0,yes,lr=1,auroc,0.9,1,2,completed,0,,"a\r\nb"\n',
)


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        *(("csv", text.encode(), "csv: its first line is not dataset,privacy,") for text in (
            "", f"\n{HEADING}\n", f"# mine\n{HEADING}\n", HEADING.replace(",", ";"), f"{HEADING},note\n")),
        ("csv", f"{HEADING}\nZ\xfcrich".encode("latin1"), "csv: cannot be read"),
        ("csv", f'{HEADING}\nbank,"'.encode(), "csv: cannot be read"),
        ("csv", None, "csv: cannot be read"),
        ("yaml", "Zürich: {rounds: 1}".encode("latin1"), "yaml: cannot be read"),
        ("yaml", b"{flow: {rounds: 1}}", "yaml: is not a list of entries.* choose another --out"),
        ("yaml", b"bank: {rounds: 1}\n...\n", "yaml: is not a list of entries"),
        ("yaml", b"  bank: {rounds: 1}\n", "yaml"),
        ("yaml", b"of/ours: &a {rounds: 1}\nbank: *a\n", "yaml: is not a list of entries"),
        ("yaml", b"bank: &x {rounds: *x}\n", "recursive.*yaml"),
        ("yaml", b"bank: {rounds: !!int x}\n", "yaml: invalid"),
        ("yaml", None, "yaml: cannot be read"),
    ],
)  # fmt: skip
def test_a_file_that_tuned_values_would_spoil_is_named_before_the_search(
    name: str, content: bytes | None, told: str, own: Path
) -> None:
    file = own / f"to/tuned/vfl.{name}"
    file.parent.mkdir(parents=True)
    file.mkdir() if content is None else file.write_bytes(content)
    with pytest.raises(VflbenchError, match=told):
        tune.ask(["algorithm=vfl", "dataset=of/ours", "trials=1", "overwrite=true"], str(own / "to"), str(own))


def test_a_file_in_place_of_the_folder_of_tuned_values_is_named(own: Path) -> None:
    (own / "tuned").touch()
    with pytest.raises(VflbenchError, match="tuned: is a file, not a folder"):
        tune.ask(["algorithm=vfl", "dataset=of/ours", "trials=1"], str(own), str(own))


def test_a_folder_that_cannot_be_written_to_is_named_before_the_search(
    own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (own / "to").mkdir()
    (own / "to/tuned").symlink_to(own / "locked")
    (own / "locked").mkdir()
    monkeypatch.setattr(tune.os, "access", lambda path, _: Path(path) != own / "locked")  # a test may be root's
    with pytest.raises(VflbenchError, match="locked: cannot be written to: choose another --out DIR"):
        tune.ask(["algorithm=vfl", "dataset=of/ours", "trials=1"], str(own / "to"), str(own))


def test_rows_of_trials_are_replaced_only_where_asked(own: Path) -> None:
    words, file = ["algorithm=vfl", "dataset=of/ours", "trials=1"], own / "to/tuned/vfl.csv"
    file.parent.mkdir(parents=True)
    file.write_bytes(f"{HEADING}\n{OURS}".encode())
    with pytest.raises(VflbenchError, match="csv: of/ours already exists: replace it with overwrite=true"):
        tune.ask(words, str(own / "to"), str(own))
    tune.ask([*words, "overwrite=true"], str(own / "to"), str(own))
    tune.ask([*words, "privacy=label_dp"], str(own / "to"), str(own))


def test_what_the_user_has_in_the_files_stays_byte_for_byte(own: Path) -> None:
    """A mark of Excel's, line ends of Windows, comments, more cells, links, and permissions."""
    trial = Trial(0, {"algorithm.lr": 0.5}, "", "completed", False, 0.9, 1.0, 2.0, 0.0, 0.0)
    method = Method("vfl", "none", ["algorithm=vfl"], {}, trials=[trial], best=0)
    before = f"\ufeff{HEADING}\r\n{BANK}\r\n# mine\r\n{BANK.strip()},more,cells\r\n"
    mine = {"csv": f"{before}{OURS}# the end", "yaml": "# mine\r\nbank:  # kept\r\n  rounds: 1\r\n"}
    (own / "to/tuned").mkdir(parents=True)
    for name, text in mine.items():
        (own / f"mine.{name}").write_bytes(text.encode())
        (own / f"mine.{name}").chmod(0o640)
        (own / f"to/tuned/vfl.{name}").symlink_to(own / f"mine.{name}")
    words = ["algorithm=vfl", "dataset=of/ours", "trials=1", "overwrite=true"]
    asked, place = tune.ask(words, str(own / "to"), str(own))
    tune.keep(own, Record({**asked.asked(), "metric": "auroc"}, methods=[method]), place, overwrite=True)
    assert place.file.is_symlink() and place.trials.is_symlink()
    assert [(own / f"mine.{name}").stat().st_mode & 0o777 for name in mine] == [0o640, 0o640]
    assert (own / "mine.yaml").read_bytes().startswith(f"{mine['yaml']}of/ours:\n  found: ".encode())
    rows = (own / "mine.csv").read_bytes().decode()
    assert rows.startswith(f"{before}# the end\nof/ours,,0,yes,lr=0.5,") and rows.count("of/ours") == 1


@pytest.mark.slow
def test_what_is_wrong_with_an_own_option_is_told(own: Path) -> None:
    with pytest.raises(ConfigError, match=r"algorithm=mien: unknown algorithm.* Did you mean 'mine'"):
        asked("algorithm=mien", own)
    with pytest.raises(ConfigError, match=r"algorithm.name=vfll: names no algorithm"):
        candidates.enter(asked("dataset=of/ours algorithm=lost", own))
    with pytest.raises(VflbenchError, match=r"dataset=our: unknown dataset.* Did you mean"):
        candidates.enter(asked("dataset=our algorithm=vfl", own))
