"""Scripts that turn runs into a paper's tables."""

import contextlib
import csv
import importlib
import re
import sys
from pathlib import Path

import pytest

import vflbench
from vflbench.federation.ray import cluster
from vflbench.results import reader
from vflbench.types import VflbenchError

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
    """scripts/regret.py, whose tables are in a folder of the test's own."""
    monkeypatch.syspath_prepend(str(SCRIPTS))
    import regret as script

    monkeypatch.setattr(script, "RESULTS", tmp_path)
    monkeypatch.setattr(script, "TABLE", tmp_path / "choosing/regret.csv")
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
    assert regret.exhaustive("mnist")["fedavg"] == 1


def test_regret_is_what_the_answer_takes_beyond_the_best(regret):
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
        regret.add({"dataset": "bank", "network": network} | found)
    assert regret.there() == {("bank", "us_uk"), ("bank", "lan")}
