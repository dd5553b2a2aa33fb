"""Scripts that turn runs into a paper's tables."""

import contextlib
import csv
import importlib
import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest

import vflbench
from tests.algorithms import small_joins
from tests.every import few_fast
from vflbench import config
from vflbench.data.divide.raw_tables import RawTable, RawTables, divide
from vflbench.data.relational import movielens
from vflbench.data.tasks import Equality
from vflbench.federation.ray import cluster
from vflbench.results import reader
from vflbench.types import DataSource, Metric, VflbenchError

SCRIPTS = Path(__file__).resolve().parent.parent / "scripts"


@pytest.fixture
def crossings(monkeypatch, capsys):
    """Runs scripts/crossings.py on folders; its exit status and what it printed."""
    monkeypatch.syspath_prepend(str(SCRIPTS))
    import crossings as script

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["crossings.py", *map(str, arguments)])
        return script.main(), capsys.readouterr().out

    return call


@pytest.mark.slow
def test_crossings(crossings, tmp_path):
    """Two methods: the cheaper one changes where their ledgers' sums say so; one that does not reach the gap is named,
    not priced."""
    small = [
        "dataset=ridge",
        "dataset.samples=40",
        "dataset.features=24",
        "algorithm.parties=4",
        "topology=path",
        "network=cost_ratio",
    ]
    for algorithm, rounds in (("svfl", 200), ("stcd", 20), ("dcpa", 1)):
        folder = f"hydra.run.dir={tmp_path}/{algorithm}"
        vflbench.run([f"algorithm={algorithm}", *small, f"rounds={rounds}", "eval_every=1", "target=1e-9", folder])

    def sent(algorithm, link):
        run = reader.load(tmp_path / algorithm)
        until = run.curve.loc[run.curve["train_suboptimality"] <= 1e-6, "round"].iloc[0]
        return sum(row.bytes for row in run.ledger.itertuples() if row.round <= until and row.link == link)

    assert sent("svfl", "client_client") == sent("stcd", "client_server") == 0
    even = sent("stcd", "client_client") / sent("svfl", "client_server")  # r at which both cost the same
    status, text = crossings(tmp_path)
    assert status == 0 and re.search(r"dcpa ridge path +not reached in 1 of 1 runs", text)
    first, second = re.findall(r"r = +(\S+) to +(\S+) +(\w+)", text)
    assert (first[2], second[2]) == ("svfl", "stcd")
    assert float(first[0]) == 0.01 and float(second[1]) == 1000
    assert (
        float(first[1]) <= even * 1.01 and float(second[0]) >= even * 0.99 and float(second[0]) / float(first[1]) < 1.02
    )

    assert crossings(tmp_path / "dcpa")[0] == 1  # nobody gets there


@pytest.mark.slow
def test_validate_architectures(ray_cluster, monkeypatch, capsys, tmp_path):
    """A quick run: two architectures, measured beside predicted; of some only, nothing is written for all."""
    monkeypatch.syspath_prepend(str(SCRIPTS))
    from vflbench.runner import distributed  # has the real one, whichever test comes first

    assert distributed.Cluster is cluster.Cluster
    monkeypatch.setattr(cluster, "Cluster", contextlib.nullcontext)  # the tests' runs already
    import validate_architectures as script

    quick = ["--architectures", "avfl,pubsub_vfl", "--epochs", "4", "--rows", "600", "--batch", "50", "--width", "16"]
    quick += ["--repeats", "1"]
    assert script.main([*quick, "--source", "synthetic", "--out", str(tmp_path)]) == 0
    text = capsys.readouterr().out
    rows = {
        row[0]: list(map(float, row[1:]))
        for row in re.findall(r"^\| (\w*vfl) " + r"\| (\S+) " * 9 + r"\|$", text, re.M)
    }
    assert set(rows) == {"avfl", "pubsub_vfl"}
    for real, predicted, ratio, computing, computing_predicted, messages, slower, *_ in rows.values():
        assert min(real, predicted, ratio, computing, computing_predicted, slower) > 0
        assert messages >= 2 * 8  # 360 rows for training, in batches of 50
    assert "Within 25%: " in text
    assert reader.load(tmp_path / "pubsub_vfl_ray").manifest["broker"]["kind"] == "nats"
    with pytest.raises(SystemExit):
        script.main(["--epochs", "3"])
    assert "--epochs 3: at least 4" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        script.main([*quick, "--write"])
    assert "--write: of all architectures" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        script.main(["--rows", "-5"])
    assert "-5: must be a whole number of at least 1" in capsys.readouterr().err


@pytest.fixture
def table(monkeypatch, capsys):
    """Runs a script of that name on folders; the CSV that it prints, by its keys."""
    monkeypatch.syspath_prepend(str(SCRIPTS))

    def call(name, *arguments):
        monkeypatch.setattr(sys, "argv", [f"{name}.py", *map(str, arguments)])
        assert importlib.import_module(name).main() == 0
        return list(csv.DictReader(capsys.readouterr().out.splitlines()))

    return call


DIGITS = ["dataset=digits", "algorithm.workers=3", "epochs=2", "seed=0", "plot=none", "floor=none"]


@pytest.mark.slow
def test_seconds_with_and_without_ranks(table, tmp_path):
    """A star, where all workers meet in every step.

    By hand: a step takes a latency and a model, 22 steps. Roles are told 8 times, which takes two latencies more. The
    same without these messages takes exactly as long as random roles.
    """
    star = ["algorithm=leasgd", "algorithm.mode=star", "algorithm.recategorise_every=3", *DIGITS]
    runs = {
        "ranked": vflbench.run([*star, f"hydra.run.dir={tmp_path}/ranked"]),
        "local": vflbench.run(["algorithm=local_sgd", "algorithm.lr=0.01", *DIGITS, f"hydra.run.dir={tmp_path}/local"]),
    }
    random = vflbench.run([*star, "algorithm.ranking=random", f"hydra.run.dir={tmp_path}/other/random"])
    found = {
        (row["algorithm.name"], row["target"], row["share"]): row
        for row in table("seconds", tmp_path / "ranked", tmp_path / "local")
    }
    end = found["leasgd", "end", ""]
    model = random.summary["bytes"]["total"] / random.summary["vectors"]
    assert float(end["unranked_seconds"]) == pytest.approx(random.summary["communication_seconds"], rel=1e-5)
    assert float(end["unranked_seconds"]) == pytest.approx(22 * (0.136 + model * 8 / 0.42e9), rel=1e-5)
    assert float(end["seconds"]) - float(end["unranked_seconds"]) == pytest.approx(8 * 2 * 0.136, abs=1e-4)
    assert float(end["seconds"]) == pytest.approx(runs["ranked"].summary["communication_seconds"], rel=1e-5)

    curve, loss = runs["ranked"].curve, 0.5 * runs["local"].curve["train_loss"].min()
    there = curve[curve["train_loss"] <= loss].iloc[0]
    half = found["leasgd", "train_loss", "0.5"]
    assert (half["seeds"], half["reached"], float(half["goal"])) == ("1", "1", pytest.approx(loss, rel=1e-5))
    assert float(half["seconds"]) == pytest.approx(there["communication_seconds"], rel=1e-5)
    assert float(half["megabytes"]) == pytest.approx(there["bytes"] / 1e6, rel=1e-5)
    alone = [row["reached"] for (name, target, _), row in found.items() if name == "local_sgd" and target != "end"]
    assert alone == ["0", "0", "0"]
    with pytest.raises(VflbenchError, match="ranked: there is no run of local_sgd with its seed and workers"):
        table("seconds", tmp_path / "ranked")


@pytest.mark.slow
def test_epsilon_at_a_target_by_both_conversions(table, tmp_path):
    """At the end both are the summary's own; at the first evaluation both are smaller."""
    private = ["algorithm=leasgd", "privacy=dp_sgd", "privacy.epsilon=4", "algorithm.batch_size=64", *DIGITS]
    run = vflbench.run([*private, "algorithm.ranking=running", f"hydra.run.dir={tmp_path}/running"])
    end, first = table("targets", tmp_path / "running", "--target", "0.01")
    spent = run.summary["privacy"]
    for name in ("epsilon", "classical_epsilon"):
        assert end[name] == f"{spent[name]:.4f}" and 0 < float(first[name]) < float(end[name])
    assert (end["at"], first["at"]) == ("end", "0.01")
    assert int(float(first["steps"])) == run.curve["iterations"].iloc[0] < int(float(end["steps"])) == spent["steps"]
    noisy = vflbench.run([*private, f"hydra.run.dir={tmp_path}/noisy"])
    with pytest.raises(VflbenchError, match="ranking=noisy spends epsilon on losses"):
        table("targets", noisy.folder)


@pytest.fixture
def regret(monkeypatch, tmp_path):
    """scripts/regret.py, whose comparisons are in a folder of the test's own."""
    monkeypatch.syspath_prepend(str(SCRIPTS))
    import regret as script

    monkeypatch.setattr(script, "RESULTS", tmp_path)
    return script


def test_the_best_of_a_comparison_is_one_that_choose_could_answer(regret, tmp_path):
    """With its predictions; not what one seed missed, nor references, nor workers with rows of a table of columns."""
    lines = [
        *("algorithm.name,algorithm.form,seeds,reached,megabytes_to_target,predict_megabytes", "vfl,'-,3,3,6,0.5"),
        *("send_once,bins,3,3,5.9,0.7", "send_once,pca,3,2,inf,0", "centralized_gd,'-,3,3,0,0", "fedavg,'-,3,3,1,"),
    ]
    (tmp_path / "comparison").mkdir()
    for data in ("bank", "mnist"):
        (tmp_path / f"comparison/{data}.csv").write_text("\n".join(lines) + "\n")
    assert regret.exhaustive("bank") == pytest.approx({"vfl": 6.5, "send_once bins": 6.6})
    assert regret.exhaustive("bank", regret.RIVALS) == {"vfl": 6.5}
    assert regret.exhaustive("mnist")["fedavg"] == 1


def test_regret_is_what_the_answer_takes_beyond_the_best(regret, tmp_path):
    every = {"vfl": 6.5, "send_once bins": 6.6, "avfl": 13.0}
    first = {"name": "avfl", "place": 1, "reached": 3, "of": 3, "bytes": 7.8e6, "values": {"codec": "int8"}}
    answer = {
        "methods": [first | {"seeds": [1, 2, 3], "basis": "finals"}], "question": {"seeds": [1, 2, 3]}, "made_by": "v",
        "tuning": {"trials_each": 2, "wall_seconds": 9.0}, "status": "complete", "verdict": {"kind": "needed"},
    }  # fmt: skip
    found = regret.compared(answer, every)
    assert (found["winner"], found["best"], found["timed_megabytes"]) == ("avfl", "vfl", 13.0)
    assert found["regret"] == pytest.approx(0.2) and found["setting"] == "codec=int8" and found["finals"] == 1
    nobody = regret.compared(answer | {"methods": [first | {"reached": 0, "seeds": [], "basis": "tuning"}]}, every)
    assert nobody["winner"] == "-" and nobody["regret"] == float("inf")
    for network in ("us_uk", "lan"):
        regret.add({"dataset": "bank", "network": network} | found, tmp_path / "choosing/regret.csv")
    assert regret.there(tmp_path / "choosing/regret.csv") == {("bank", "us_uk"), ("bank", "lan")}


# Stands for a program of the authors': records its call, and logs an error that is least at a rate of 0.1.
THEIR_PROGRAM = """
import json, os, sys, types
import loguru, torcheval.metrics, wandb
from dataset import movielens

words = dict(word.lstrip("-").split("=") for word in sys.argv[2:])
with open(os.environ["ORACLE_CALLS"], "a") as file:
    call = words | {"program": sys.argv[0], "data": sys.argv[1], "files": sorted(os.listdir(sys.argv[1] + "/test"))}
    file.write(json.dumps(call) + "\\n")
if os.environ.get("ORACLE_FAILS"):
    raise ImportError("no torch")
run = wandb.init(config=types.SimpleNamespace(**words), project="p")
run.name = dict(wandb.config)["model"] + wandb.config.model
wandb.define_metric("epoch", summary="min")
rate, scored = float(words.get("local_lr") or words["lr"]), os.path.basename(sys.argv[1])
for epoch in range(1, 1 + (1 if rate > 1 else 3)):
    error = abs(rate - 0.1) + {"val": 2, "test": 1}[scored] + 3 - epoch
    wandb.log({"epoch": epoch, "exec_t": 0.5, "train/rmse": 0.0, "test/rmse": error}, step=epoch)
wandb.finish()
"""


@pytest.fixture
def oracle(monkeypatch, tmp_path):
    """scripts/oracle.py with a clone that only records its calls, small tables, and no run of ours."""
    monkeypatch.syspath_prepend(str(SCRIPTS))
    import oracle as script

    for name in script.NEEDED:
        (tmp_path / "clone" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "clone" / name).write_text(THEIR_PROGRAM if name.startswith("run/") else "")
    small = small_joins.raw()
    keys = {"movie": "movieid", "user": "userid", "movies": "movieid", "users": "userid"}
    tables = tuple(
        RawTable(t.name, {keys.get(k, keys.get(t.name)): v for k, v in t.keys.items()}, t.features, t.columns)
        for t in small.tables
    )
    joins = tuple(Equality(("ratings", key), (table, key)) for key, table in script.OTHER_TABLES.items())
    splits = {"train": np.arange(40), "val": np.arange(40, 50), "test": np.arange(50, 60)}
    raw = RawTables(tables, "ratings", small.labels, 0, joins)
    task = divide("small", raw, splits, DataSource("synthetic", "", ()), Metric("rmse", "min"), layout="relational")
    monkeypatch.setattr(movielens, "load", lambda *ignored: task)
    monkeypatch.setattr(script, "ours", lambda folder, *setting: [setting[-2], 7.0, 0.25])
    monkeypatch.setenv("ORACLE_CALLS", str(tmp_path / "calls"))
    script.task = task
    return script


@pytest.mark.slow
def test_the_oracle_gives_both_the_same_trials_and_their_code_the_test_rows_last(oracle, tmp_path, capsys):
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "clone").rglob("*")}
    words = ["--epochs", "3", "--rates", "0.5", "0.1", "2", "--rhos", "1", "--out", str(tmp_path / "table.csv")]
    assert oracle.main([str(tmp_path / "clone"), *words]) == 0
    calls = [json.loads(line) for line in (tmp_path / "calls").read_text().splitlines()]
    assert [Path(call["program"]).name for call in calls] == ["admm.py"] * 4 + ["sgd.py"] * 4
    assert [Path(call["data"]).name for call in calls] == ["val", "val", "val", "test"] * 2
    assert [call["local_lr"] for call in calls[:4]] == ["0.5", "0.1", "2.0", "0.1"]
    assert [call["lr"] for call in calls[4:]] == ["0.5", "0.1", "2.0", "0.1"]
    assert calls[0]["files"] == ["movies_genres_split.csv", "ratings.csv", "users.csv"]
    same = {"rho": "1.0", "communication_round": "3", "model": "Linear", "use_GPU": "False", "dataset": "MovieLens-1M"}
    assert same.items() <= calls[0].items()
    with (tmp_path / "table.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["method"], row["code"], row["model"]) for row in rows] == [
        (method, *code)
        for method in ("rfl_admm_v", "vfl_sgd")
        for code in (("authors", "theirs"), ("ours", "theirs"), ("ours", "default"))
    ]
    assert all(row["trials"] == "3" and row["lr"] == "0.1" for row in rows)
    assert [float(rows[0][key]) for key in ("val_rmse", "test_rmse", "seconds")] == [2, 1, 1.5]  # of the last epoch
    assert [float(rows[1][key]) for key in ("val_rmse", "test_rmse", "seconds")] == [0.1, 7, 0.25]
    assert "lr=2.0 rho=1.0: [inf, 0.5]" in capsys.readouterr().err  # it stopped after an epoch: it diverged
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "clone").rglob("*")} == before


@pytest.mark.parametrize("split", ["train", "val", "test"])
def test_the_oracle_writes_tables_that_join_to_our_rows(oracle, split):
    found, task = oracle.tables(oracle.task, split), oracle.task
    joined = found["ratings"].merge(found["movies"], on="movieid", suffixes=("", "_movie"))
    joined = joined.merge(found["users"], on="userid", suffixes=("", "_user")).drop(columns=["movieid", "userid"])
    features = {part.table: part.features for part in task.clients}
    if split == "train":
        assert len(found["ratings"]) == 40 and len(joined) > 40
        assert np.array_equal(found["ratings"]["rating"], task.training_labels())
        return
    held_out = task.held_out[split]
    features["ratings"] = next(part.held_out[split] for part in task.clients if part.table == "ratings")
    blocks = [features[name][rows] for name, rows in zip(task.tables, held_out.rows, strict=True)]
    wanted = np.column_stack([blocks[0], held_out.labels, *blocks[1:]])
    in_order = [np.unique(rows.astype(np.float32), axis=0) for rows in (joined.to_numpy(float), wanted)]
    assert len(joined) == len(wanted) and np.array_equal(*in_order)


@pytest.mark.slow
def test_the_oracle_says_what_is_wrong_in_a_sentence(oracle, tmp_path, capsys, monkeypatch):
    def said(clone):
        assert oracle.main([str(clone), "--out", str(tmp_path / "table.csv")]) == 1
        assert not (tmp_path / "table.csv").exists()
        (line,) = [line for line in capsys.readouterr().err.splitlines() if line]
        return line

    clone = tmp_path / "clone"
    assert "no clone of JerryLead/TablePuppet, as it has no run/admm.py, " in said(tmp_path)
    monkeypatch.setenv("ORACLE_FAILS", "1")
    assert said(clone) == "run/admm.py of the clone ended with 1: ImportError: no torch"
    (clone / "run" / "admm.py").write_text("")
    assert said(clone) == "run/admm.py of the clone logged no epoch to wandb: is it a later version?"
    monkeypatch.undo()
    monkeypatch.setenv("VFLBENCH_DATA", str(tmp_path))
    assert "ml-1m-sample100k/users.dat" in said(clone)


@pytest.mark.parametrize("model", few_fast(["theirs", "default"]))
@pytest.mark.parametrize("method", few_fast(["rfl_admm_v", "vfl_sgd"]))
def test_the_words_of_the_oracle_are_a_run(oracle, method, model):
    words = oracle.words(method, model, 10, 0, 0.1, 0.5)
    with config.session(words) as hydra:
        run = config.plan(hydra, words).config
    assert run.model.relu_output == (model == "theirs") != run.algorithm.center_labels
    assert run.algorithm.lr == 0.1 and run.epochs == run.eval_every == 10 and not run.algorithm.__dict__.get("proximal")


def test_a_file_of_the_users_is_kept(oracle, tmp_path, capsys):
    mine = tmp_path / "mine.csv"
    mine.write_text("mine")
    assert oracle.main([str(tmp_path / "clone"), "--out", str(mine)]) == 1
    assert "mine.csv: must be a new file" in capsys.readouterr().err and mine.read_text() == "mine"
