"""Loggers: what a run tells them as it goes, that they change nothing, and that their files are the run's.

Each package is stood in for by a fake that takes the calls that we make, as the real one does. Where the real one is
installed too, the same is read back from the files that it wrote.
"""

from __future__ import annotations

import importlib.util
import logging
import sys
from collections.abc import Callable, Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import vflbench
from tests.every import few_fast
from vflbench import registry
from vflbench.results import inventory
from vflbench.results.reader import Run
from vflbench.runner import logs
from vflbench.runner.evaluate import Observer
from vflbench.types import ConfigError

SMALL = ["algorithm=stcd", "algorithm.parties=3", "dataset=ridge", "dataset.samples=40", "dataset.features=24"]
SMALL += ["topology=path", "rounds=12", "eval_every=2", "checkpoint_every=4", "plot=none"]
EVALUATED = [2, 4, 6, 8, 10, 12]
SCORE = "train_suboptimality"
PACKAGES = ("tensorboard", "mlflow", "wandb")


def run(folder: Path, logger: str, *more: str) -> Run:
    return vflbench.run([*SMALL, f"logger={logger}", *more, f"hydra.run.dir={folder}"])


@pytest.fixture(scope="module")
def silent(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The run without a logger; to be read only."""
    return run(tmp_path_factory.mktemp("silent") / "run", "none")


@pytest.fixture
def interrupted(monkeypatch: pytest.MonkeyPatch) -> Callable[[], Any]:
    """Runs end by Ctrl-C in round 11, after a checkpoint at round 8; what is returned takes that back."""
    on_round = Observer.on_round

    def stopping(self: Observer, round: int, engine: Any) -> bool:
        if round == 11:
            raise KeyboardInterrupt
        return on_round(self, round, engine)

    patch = monkeypatch.context()
    patch.__enter__().setattr(Observer, "on_round", stopping)
    return lambda: patch.__exit__(None, None, None)


# --- the file of lines ------------------------------------------------------------------------------------------------


def lines(folder: Path) -> list[dict[str, str]]:
    names, *rows = [line.split(",") for line in (folder / "logs/csv.csv").read_text().splitlines()]
    return [dict(zip(names, row, strict=True)) for row in rows]


@pytest.mark.slow
def test_each_evaluation_is_a_line(tmp_path: Path, silent: Run) -> None:
    logged = run(tmp_path / "run", "csv")
    assert logged.curve.equals(silent.curve) and logged.manifest["config_hash"] == silent.manifest["config_hash"]
    assert (logged.folder / "ledger.parquet").read_bytes() == (silent.folder / "ledger.parquet").read_bytes()
    rows = lines(logged.folder)
    assert [int(row["round"]) for row in rows] == EVALUATED
    for key in (SCORE, "bytes", "train_loss"):
        assert [float(row[key]) for row in rows] == logged.curve[key].tolist()
    assert inventory.foreign(logged.folder) == []


def test_a_line_is_written_when_the_evaluation_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen, row = [], logs.Log.row

    def after(self: logs.Log, rows: Any, round: int) -> None:
        row(self, rows, round)
        seen.append(len(lines(tmp_path / "run")))

    monkeypatch.setattr(logs.Log, "row", after)
    run(tmp_path / "run", "csv")
    assert seen == [round // 2 for round in range(1, 13)]


@pytest.mark.slow
def test_a_run_that_goes_on_logs_nothing_twice(tmp_path: Path, silent: Run, interrupted: Callable[[], Any]) -> None:
    """It goes on from round 8: round 10 is made again, and was logged before."""
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "run", "csv")
    assert [int(row["round"]) for row in lines(tmp_path / "run")] == EVALUATED[:5]
    assert inventory.foreign(tmp_path / "run") == []
    with (tmp_path / "run/logs/csv.csv").open("a") as file:
        file.write("12,4")  # as a kill would leave it
    inventory.writing(tmp_path / "run", "logs/csv.csv")
    interrupted()
    again = run(tmp_path / "run", "csv", "resume=true")
    assert again.curve.equals(silent.curve)
    assert [float(row[SCORE]) for row in lines(again.folder)] == silent.curve[SCORE].tolist()
    assert inventory.foreign(again.folder) == []


@pytest.mark.slow
def test_a_run_that_is_replaced_leaves_no_log_and_no_file_of_the_users_goes(tmp_path: Path) -> None:
    run(tmp_path / "run", "csv")
    deep = tmp_path / "run/logs/a/b/c"
    deep.mkdir(parents=True)
    inventory.writing(tmp_path / "run", "logs/a/b/c/ours")
    (deep / "ours").write_text("of a logger's folder")
    run(tmp_path / "run", "none", "overwrite=true")
    assert not (tmp_path / "run/logs").exists()
    run(tmp_path / "run", "csv", "overwrite=true")
    (tmp_path / "run/logs/mine").write_text("the user's")
    with pytest.raises(vflbench.types.VflbenchError, match="logs/mine: not what vflbench wrote there"):
        run(tmp_path / "run", "none", "overwrite=true")
    assert (tmp_path / "run/logs/mine").read_text() == "the user's"


@pytest.mark.slow
def test_a_file_of_the_users_in_its_way_is_not_touched(
    tmp_path: Path, interrupted: Callable[[], Any], caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "run", "none")
    interrupted()
    (tmp_path / "run/logs").mkdir()
    (tmp_path / "run/logs/csv.csv").write_text("the user's")
    with caplog.at_level(logging.WARNING):
        assert run(tmp_path / "run", "csv", "resume=true").status == "completed"
    assert (tmp_path / "run/logs/csv.csv").read_text() == "the user's"
    assert "logger=csv has failed, and the run goes on without it" in caplog.text and "logs/csv.csv" in caplog.text


@pytest.mark.slow
@pytest.mark.parametrize("where", ["finish", *(one for one in ("start", "log"))])
def test_an_error_of_a_logger_does_not_lose_the_run(
    where: str, tmp_path: Path, silent: Run, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(*_: Any) -> None:
        raise ConnectionError("no route\nto the host")

    module = registry.load_option("logger", "csv")
    monkeypatch.setattr(module if where == "start" else module.Lines, where, fails)
    with caplog.at_level(logging.WARNING):
        assert run(tmp_path / "run", "csv").curve.equals(silent.curve)
    told = [text for text in caplog.messages if "logger" in text]
    assert told == ["logger=csv has failed, and the run goes on without it: ConnectionError: no route"]
    assert inventory.foreign(tmp_path / "run") == []


# --- packages ---------------------------------------------------------------------------------------------------------


class Recorded(dict[str, Any]):
    """What a fake was told: points by name, parameters, and what came at the end."""

    def __init__(self) -> None:
        super().__init__(points={}, parameters=None, ended=None, starts=0, texts=[])

    def point(self, key: str, value: float, step: int) -> None:
        self["points"].setdefault(key, []).append((step, value))


def fake_tensorboard(recorded: Recorded) -> dict[str, ModuleType]:
    class SummaryWriter:
        def __init__(self, log_dir: str | None = None) -> None:
            recorded["starts"] += 1
            Path(str(log_dir)).mkdir(parents=True, exist_ok=True)
            (Path(str(log_dir)) / f"events.out.tfevents.{recorded['starts']}").write_bytes(b"events")

        def add_text(self, tag: str, text_string: str, global_step: int | None = None) -> None:
            recorded["texts"].append((tag, text_string))

        def add_scalar(self, tag: str, scalar_value: float, global_step: int | None = None) -> None:
            assert global_step is not None
            recorded.point(tag, scalar_value, global_step)

        def add_hparams(
            self, hparam_dict: dict[str, Any], metric_dict: dict[str, float], *, run_name: str | None = None
        ) -> None:
            assert all(isinstance(value, bool | int | float | str) for value in hparam_dict.values())
            recorded["parameters"], recorded["ended"] = hparam_dict, metric_dict

        def flush(self) -> None: ...
        def close(self) -> None: ...

    return {"tensorboard": ModuleType("tensorboard"), "torch.utils.tensorboard": _module(SummaryWriter=SummaryWriter)}


def fake_mlflow(recorded: Recorded) -> dict[str, ModuleType]:
    runs: list[Any] = []
    experiments: dict[str, Any] = {}

    def entity(*keys: str) -> Callable[..., Any]:
        return lambda *values: SimpleNamespace(**dict(zip(keys, values, strict=True)))

    class MlflowClient:
        def __init__(self, tracking_uri: str | None = None) -> None:
            assert tracking_uri is not None and tracking_uri.startswith("sqlite:///"), tracking_uri
            recorded["starts"] += 1
            Path(tracking_uri.removeprefix("sqlite:///")).write_bytes(b"database")

        def get_experiment_by_name(self, name: str) -> Any:
            return experiments.get(name)

        def create_experiment(self, name: str) -> str:
            experiments[name] = SimpleNamespace(experiment_id=str(len(experiments)))
            return str(experiments[name].experiment_id)

        def search_runs(self, experiment_ids: list[str], filter_string: str = "") -> list[Any]:
            return [one for one in runs if filter_string == f"tags.`vflbench.token` = '{one.tags['vflbench.token']}'"]

        def create_run(self, experiment_id: str, *, tags: dict[str, str], run_name: str) -> Any:
            info = SimpleNamespace(run_id=f"run {len(runs)}")
            runs.append(SimpleNamespace(info=info, tags=tags))
            return runs[-1]

        def update_run(self, run_id: str, status: str | None = None) -> None:
            recorded["ended"] = status

        def log_batch(self, run_id: str, metrics: Any = (), params: Any = (), tags: Any = ()) -> None:
            assert run_id == "run 0" and len(metrics) + len(params) + len(tags) <= 100
            for metric in metrics:
                recorded.point(metric.key, metric.value, metric.step)
            if params:
                recorded["parameters"] = {**(recorded["parameters"] or {}), **{p.key: p.value for p in params}}

        def set_terminated(self, run_id: str, status: str | None = None) -> None:
            recorded["ended"] = status

    kinds = {
        "Metric": entity("key", "value", "timestamp", "step"),
        "Param": entity("key", "value"),
        "RunTag": entity("key", "value"),
    }
    entities, tracking = _module(**kinds), _module(MlflowClient=MlflowClient)
    return {"mlflow": _module(entities=entities), "mlflow.entities": entities, "mlflow.tracking": tracking}


def fake_wandb(recorded: Recorded) -> dict[str, ModuleType]:
    class Begun:
        def __init__(self, place: Path) -> None:
            self.dir, self.summary = str(place / "files"), dict[str, Any]()
            (place / "logs").mkdir(parents=True)
            (place / "run.wandb").write_bytes(b"run")
            (place / "logs/debug-core.log").symlink_to("/nowhere")

        def log(self, data: dict[str, Any], step: int | None = None) -> None:
            assert step is not None
            for key, value in data.items():
                recorded.point(key, value, step)

        def finish(self, exit_code: int | None = None) -> None:
            recorded["ended"] = {**self.summary, "exit_code": exit_code}

    def init(**given: Any) -> Begun:
        assert given["mode"] == "offline" and given["resume"] == "allow"
        recorded["parameters"], recorded["starts"] = given["config"], recorded["starts"] + 1
        return Begun(Path(given["dir"]) / "wandb" / f"offline-run-{recorded['starts']}-{given['id']}")

    return {"wandb": _module(Settings=SimpleNamespace, init=init)}


def _module(**members: Any) -> ModuleType:
    made = ModuleType("fake")
    vars(made).update(members)
    return made


FAKES = {"tensorboard": fake_tensorboard, "mlflow": fake_mlflow, "wandb": fake_wandb}


@pytest.fixture
def recorded(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Recorded]:
    """What the fake of the package in the test's parameter is told."""
    found = Recorded()
    for name, module in FAKES[request.param](found).items():
        module.__spec__ = ModuleSpec(name, None)
        monkeypatch.setitem(sys.modules, name, module)
    yield found


@pytest.mark.slow
@pytest.mark.parametrize(("recorded", "name"), [(name, name) for name in PACKAGES], indirect=["recorded"])
def test_a_package_is_told_of_each_evaluation_of_the_parameters_and_of_the_end(
    recorded: Recorded, name: str, tmp_path: Path, silent: Run
) -> None:
    logged = run(tmp_path / "run", name, "hydra.job_logging.root.level=WARNING")
    assert logged.curve.equals(silent.curve)
    expected = list(zip(EVALUATED, silent.curve[SCORE].tolist(), strict=True))
    assert recorded["points"][SCORE] == expected
    assert [step for step, _ in recorded["points"]["bytes"]] == EVALUATED and "round" not in recorded["points"]
    assert recorded["points"]["bytes"][-1][1] == silent.summary["bytes"]["total"]
    assert str(recorded["parameters"]["algorithm.parties"]) == "3" and recorded["starts"] == 1
    rounds = {
        "tensorboard": lambda: recorded["ended"]["summary/rounds"],
        "mlflow": lambda: recorded["points"]["summary/rounds"][0][1],
        "wandb": lambda: recorded["ended"]["summary/rounds"],
    }[name]()
    assert rounds == 12 and (name != "mlflow" or recorded["ended"] == "FINISHED")
    assert inventory.foreign(logged.folder) == []
    run(tmp_path / "run", "none", "overwrite=true")
    assert not [path for path in (tmp_path / "run/logs").rglob("*") if not path.is_dir()]


@pytest.mark.slow
@pytest.mark.parametrize(("recorded", "name"), [(name, name) for name in PACKAGES], indirect=["recorded"])
def test_a_package_is_told_nothing_twice(
    recorded: Recorded, name: str, tmp_path: Path, silent: Run, interrupted: Callable[[], Any]
) -> None:
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "run", name)
    interrupted()
    run(tmp_path / "run", name, "resume=true")
    assert recorded["points"][SCORE] == list(zip(EVALUATED, silent.curve[SCORE].tolist(), strict=True))
    assert recorded["starts"] == 2 and len(recorded["texts"]) == (name == "tensorboard")
    assert inventory.foreign(tmp_path / "run") == []


@pytest.mark.slow
@pytest.mark.parametrize(("recorded", "name"), [(name, name) for name in PACKAGES], indirect=["recorded"])
def test_files_may_go_to_a_folder_of_the_users(recorded: Recorded, name: str, tmp_path: Path) -> None:
    run(tmp_path / "run", name, f"logger.dir={tmp_path / 'shared'}")
    assert {path.name for path in (tmp_path / "run/logs").iterdir()} == {f"{name}.rounds"}
    assert [path for path in (tmp_path / "shared").rglob("*") if path.is_file()] and recorded["starts"] == 1


@pytest.mark.parametrize("name", few_fast(PACKAGES))
def test_a_package_that_is_missing_is_told_before_any_work(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda package: None)
    told = rf"logger={name}: needs a package that is not installed: pip install 'vflbench\[{name}\]'"
    with pytest.raises(ConfigError, match=told):
        run(tmp_path / "run", name)
    assert not (tmp_path / "run").exists()


def read_tensorboard(place: Path) -> list[tuple[int, float]]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = EventAccumulator(str(place))
    found.Reload()
    return [(event.step, event.value) for event in found.Scalars(SCORE)]


def read_mlflow(place: Path) -> list[tuple[int, float]]:
    from mlflow.tracking import MlflowClient

    client = MlflowClient(tracking_uri=f"sqlite:///{place / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("vflbench")
    (one,) = client.search_runs([experiment.experiment_id])
    assert one.info.status == "FINISHED" and one.data.params["algorithm.parties"] == "3"
    return [(metric.step, metric.value) for metric in client.get_metric_history(one.info.run_id, SCORE)]


def read_wandb(place: Path) -> list[tuple[int, float]]:
    """From the records of `wandb sync`: one of the file's for each row."""
    import json

    from wandb.proto import wandb_internal_pb2 as records

    found = []
    for path in sorted(place.glob("wandb/offline-run-*/*.wandb")):
        data, at = path.read_bytes(), 7
        whole = b""
        while at + 7 <= len(data):  # blocks of 32 KiB of records: checksum, length, type
            left = 32768 - at % 32768
            if left < 7:
                at += left
                continue
            length, kind = int.from_bytes(data[at + 4 : at + 6], "little"), data[at + 6]
            whole += data[at + 7 : at + 7 + length]
            at += 7 + length
            if kind in (1, 4):
                record, whole = records.Record(), (record_bytes := whole, b"")[1]
                record.ParseFromString(record_bytes)
                row = {(item.key or ".".join(item.nested_key)): item.value_json for item in record.history.item}
                if SCORE in row:
                    found.append((int(json.loads(row["_step"])), float(json.loads(row[SCORE]))))
    return found


READ = {"tensorboard": read_tensorboard, "mlflow": read_mlflow, "wandb": read_wandb}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["csv", *(name for name in PACKAGES if importlib.util.find_spec(name))])
def test_what_is_installed_has_it_in_its_files(
    name: str, tmp_path: Path, silent: Run, interrupted: Callable[[], Any]
) -> None:
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "run", name)
    interrupted()
    again = run(tmp_path / "run", name, "resume=true")
    assert again.curve.equals(silent.curve)
    expected = list(zip(EVALUATED, silent.curve[SCORE].tolist(), strict=True))
    place = tmp_path / "run/logs"
    found = READ[name](place) if name in READ else [(int(r["round"]), float(r[SCORE])) for r in lines(tmp_path / "run")]
    assert [step for step, _ in found] == EVALUATED
    assert [value for _, value in found] == pytest.approx([value for _, value in expected], rel=1e-6)
    assert inventory.foreign(again.folder) == []
    run(tmp_path / "run", "none", "overwrite=true")
    assert not [path for path in place.rglob("*") if not path.is_dir()]
