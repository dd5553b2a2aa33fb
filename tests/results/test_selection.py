"""Which runs are compared, what sets them apart, which setting validation chooses, and what is said of runs that cannot
be read."""

import json
import shlex

import numpy as np
import pytest

from vflbench.results import selection
from vflbench.types import VflbenchError


def test_settings_differ_in_more_than_the_seed(make_run):
    runs = [make_run(f"{lr}{seed}", seed=seed, options={"lr": lr, "layers": 4}) for lr in (0.1, 0.2) for seed in (0, 1)]
    runs.append(make_run("other", algorithm="vfl", options={"lr": 0.7}))
    found = selection.settings(runs)
    assert [(s.algorithm, s.differs, s.seeds) for s in found] == [
        ("glasu", {"algorithm.lr": 0.1}, [0, 1]),
        ("glasu", {"algorithm.lr": 0.2}, [0, 1]),
        ("vfl", {}, [0]),
    ]
    assert found[0].words == "lr=0.1"
    # Of all configurations: keys on which those that have them do not agree.
    assert selection.differing(found) == {"algorithm.name": ["glasu", "glasu", "vfl"], "algorithm.lr": [0.1, 0.2, 0.7]}


def test_derived_keys_are_named_only_where_nothing_else_tells(make_run):
    both = [make_run("a", options={"lr": 0.1}, rounds=10), make_run("b", options={"lr": 0.2}, rounds=20)]
    assert [s.differs for s in selection.settings(both)] == [{"algorithm.lr": 0.1}, {"algorithm.lr": 0.2}]
    alone = [make_run("c", rounds=10), make_run("d", rounds=20)]
    assert [s.differs for s in selection.settings(alone)] == [{"rounds": 10}, {"rounds": 20}]


def test_conditions_are_compared_over_all_methods(make_run):
    """Two methods on two networks: neither varies its own, and the reader must see it."""
    a, b = make_run("a"), make_run("b", algorithm="vfl", network={"name": "us_us"})
    assert [s.differs for s in selection.settings([a, b])] == [{"network.name": "us_uk"}, {"network.name": "us_us"}]


def test_validation_chooses_and_test_does_not(make_run):
    """All test values are the same; validation is scaled: 0.3, 0.6 and 0.9 at the end. The best of them lacks a
    seed."""
    runs = [
        make_run(f"{lr}{s}", seed=s, options={"lr": lr}, scale=scale)
        for lr, scale in ((1, 1.0), (2, 2.0))
        for s in (0, 1)
    ]
    runs.append(make_run("lucky", seed=0, options={"lr": 3}, scale=3.0))
    (choice,) = selection.choose(selection.settings(runs))
    assert choice.setting.differs == {"algorithm.lr": 2}
    assert choice.validation == pytest.approx([0.6, 0.6])
    assert "2 settings, mean over 2 seeds; 1 with fewer seeds left out" in choice.why


def test_groups_are_what_no_search_may_choose(make_run):
    """The number of parties and the network are the problem, the learning rate is not."""
    runs = [make_run(f"{n}{lr}", options={"parties": n, "lr": lr}, scale=lr) for n in (3, 5) for lr in (1.0, 2.0)]
    choices = selection.choose(selection.settings(runs))
    assert [choice.group for choice in choices] == ["glasu · parties=3", "glasu · parties=5"]
    assert all(choice.setting.differs["algorithm.lr"] == 2.0 for choice in choices)


def test_without_validation_nothing_is_chosen(make_run):
    found = selection.settings([make_run("a", validation=False), make_run("b", options={"lr": 2}, validation=False)])
    choices = selection.choose(found)
    assert all(
        choice.setting is None and choice.command is None and "no validation split" in choice.why for choice in choices
    )
    assert selection.target(found) == (None, "no validation split: a target would be judged on test data")
    assert selection.reached(found[0].runs[0], 0.1) is None  # though the test metric has reached it


def test_target(make_run):
    """The worst seed of four settings ends at 0.3, 0.33, 0.42, 0.6: three of four reach 0.33."""
    runs = [make_run(f"{k}", options={"lr": k}, scale=scale) for k, scale in enumerate((1.0, 1.1, 1.4, 2.0))]
    runs.append(make_run("worse", seed=1, options={"lr": 3}, scale=1.9))
    value, why = selection.target(selection.settings(runs))
    assert value == 0.33 and "three quarters" in why
    assert selection.reached(runs[1], value) == 2 and selection.reached(runs[0], value) is None
    assert selection.target(selection.settings([*runs, make_run("own", target=0.25, seed=9)])) == (
        0.25,
        "the runs' target",
    )


def test_rerun_has_all_seeds_and_what_made_the_run(make_run, tmp_path):
    words = ["algorithm=glasu", "algorithm.lr=0.1", "dataset.columns=[2,3]", "seed=4", "hydra.sweep.dir=x"]
    dropped = [words[4], "objective=metric", "logger=wandb", "logger.mode=online"]
    runs = [make_run(f"r{seed}", seed=seed, overrides=[*words[:3], f"seed={seed}", *dropped]) for seed in (4, 2)]
    command = selection.rerun(selection.settings(runs)[0])
    assert shlex.split(command) == ["vflbench", "-m", *words[:3], "seed=2,4"]
    manifest = json.loads((runs[0].folder / "manifest.json").read_text())
    (runs[0].folder / "manifest.json").write_text(
        json.dumps(manifest | {"command": "vflbench --config-dir 'my options' algorithm=glasu"})
    )
    again = type(runs[0])(runs[0].folder)
    assert shlex.split(selection.rerun(selection.settings([again])[0]))[:3] == [
        "vflbench",
        "--config-dir",
        "my options",
    ]
    assert selection.rerun(selection.settings([make_run("bare")])[0]) is None


@pytest.fixture
def damaged(make_run, tmp_path):
    """A folder with one good run and one of each kind of bad ones."""
    make_run("good")
    for status in ("failed", "skipped", "interrupted", "diverged"):
        make_run(status, status=status, options={"lr": status})
    (make_run("unfinished", options={"lr": "u"}).folder / "summary.json").unlink()
    curve = make_run("truncated", options={"lr": "t"}).folder / "curve.csv"
    curve.write_text(curve.read_text()[:-7])
    curve = make_run("cut_between_lines", options={"lr": "l"}).folder / "curve.csv"
    curve.write_text("".join(curve.read_text().splitlines(keepends=True)[:-1]))
    make_run("no_curve", options={"lr": "n"}).folder.joinpath("curve.csv").unlink()
    (make_run("no_manifest", options={"lr": "m"}).folder / "manifest.json").unlink()
    for name, change in (("version", {"schema": 7}), ("incomplete", {"bytes": {}}), ("text", {"metric": "accuracy"})):
        path = make_run(name, options={"lr": name}).folder / "summary.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | change))
    make_run("broken", options={"lr": "b"}).folder.joinpath("summary.json").write_text('{"status": ')
    make_run("twice")
    (make_run("no_config", options={"lr": "c"}).folder / "manifest.json").write_text('{"schema": 1, "config": []}')
    return tmp_path


def test_bad_runs_are_named_and_left_out(damaged):
    found = selection.collect([damaged])
    assert [run.folder.name for run in found.runs] == ["good"]
    notes = {note.split(" is left out: ")[0].rsplit("/", 1)[1]: note.split(" is left out: ")[1] for note in found.notes}
    expected = {
        **{
            "failed": "status failed: because",
            "skipped": "status skipped: because",
            "interrupted": "status interrupted: because",
        },
        **{"diverged": "status diverged: because", "unfinished": "it has not ended", "truncated": "curve.csv line 4"},
        "cut_between_lines": f"it ends with round 20, test_accuracy {20 / 90}; summary.json ends with {30 / 90}",
        **{
            "no_curve": "curve.csv is missing",
            "no_manifest": "manifest.json is missing",
            "version": "schema version 7",
        },
        **{
            "incomplete": "bytes.total: missing",
            "text": "is no object",
            "broken": "is truncated or malformed",
            "twice": "the seed of",
        },
        "no_config": "manifest.json is malformed: config: [] is no object",
    }
    assert set(notes) == set(expected)
    for name, words in expected.items():
        assert words in notes[name], name


def test_folders_without_runs_are_refused(tmp_path):
    with pytest.raises(VflbenchError, match="no run at or below"):
        selection.collect([tmp_path])
    with pytest.raises(VflbenchError, match="is no folder"):
        selection.collect([tmp_path / "nowhere"])


def test_a_run_given_twice_counts_once(make_run, tmp_path):
    run = make_run("sweep/0")
    found = selection.collect([tmp_path, run.folder, tmp_path / "sweep"])
    assert len(found.runs) == 1 and not found.notes


def test_scores_leave_out_what_is_not_there(make_run):
    (setting,) = selection.settings([make_run("a"), make_run("b", seed=1)])
    setting.runs[0].summary["metric"]["selected"] = None
    assert np.array_equal(setting.scores("selected"), [30 / 90])
