"""The table at the end of a sweep."""

import json
import re

from vflbench.results import folder, sweep_table


def cells(text):
    """The table's lines, by cell."""
    return [re.split(r"\s{2,}", line.strip()) for line in text.splitlines()]


def test_one_line_a_setting_with_mean_and_spread_over_its_seeds(make_run, tmp_path):
    for job, (algorithm, seed) in enumerate([("glasu", 0), ("glasu", 1), ("glasu", 2), ("standalone_gnn", 0)]):
        make_run(str(job), algorithm, seed, overrides=[f"algorithm={algorithm}", "dataset=cora", f"seed={seed}"])
    for job, final, sent in ((0, 0.80, 1_000_000), (1, 0.90, 2_000_000), (2, 0.85, 3_000_000)):
        path = tmp_path / str(job) / "summary.json"
        summary = json.loads(path.read_text())
        summary["metric"]["final"] = final
        summary["bytes"] |= {"total": sent, "by_tag": {"embedding": sent}, "by_link": {"client_server": sent}}
        path.write_text(json.dumps(summary))
    rows = cells(sweep_table.table(tmp_path))
    assert rows[0] == [
        *("jobs", "algorithm", "seeds", "status", "metric", "selected", "final", "sent", "communication"),
    ]
    assert rows[1] == [
        *("0-2", "glasu", "3", "3 completed", "accuracy", "0.3333", "0.8500 ± 0.0500", "2 MB ± 1 MB", "15 s"),
    ]
    assert rows[2][:4] == ["3", "standalone_gnn", "1", "completed"]


def test_a_seed_that_was_typed_with_plus_signs_is_a_seed(make_run, tmp_path):
    for seed in (0, 1):
        make_run(str(seed), seed=seed, overrides=["algorithm=glasu", f"++seed={seed}"])
    assert cells(sweep_table.table(tmp_path))[1][:2] == ["0-1", "2"]


def test_every_job_is_counted_and_means_are_of_those_that_ended_well(make_run, tmp_path):
    for job, status in ((0, "completed"), (2, "diverged"), (10, "completed")):
        make_run(str(job), seed=job, status=status, overrides=["algorithm=glasu", "dataset=cora", f"seed={job}"])
    path = tmp_path / "2" / "summary.json"
    path.write_text(path.read_text().replace('"final": 0.333', '"final": 9.333'))
    (tmp_path / "4" / ".hydra").mkdir(parents=True)  # failed before anything was written
    (tmp_path / "4" / ".hydra" / "overrides.yaml").write_text("- algorithm=glasu\n- dataset=cora\n- seed=4\n")
    broken = make_run("5", overrides=["algorithm=glasu", "dataset=cora", "seed=5"]).folder
    (broken / "summary.json").write_text("{")
    rows = cells(sweep_table.table(tmp_path))
    assert rows[1][:5] == [
        "0,2,4-5,10",
        "5",
        "2 completed, 1 diverged, 1 no result, 1 unreadable",
        "accuracy",
        "0.3333",
    ]
    assert rows[1][5] == "0.3333" and len(rows) == 2


def test_a_key_that_a_method_lacks_is_said_to_be_left_out(make_run, tmp_path):
    make_run("0", "vfl", overrides=["algorithm=vfl", "seed=0"])
    make_run("1", "mtcd", overrides=["algorithm=mtcd", "algorithm.local_steps=2", "seed=0"])
    rows = cells(sweep_table.table(tmp_path))
    assert rows[0][:3] == ["jobs", "algorithm", "algorithm.local_steps"]
    assert rows[1][:3] == ["0", "vfl", "left out"] and rows[2][:3] == ["1", "mtcd", "2"]


def test_a_run_without_validation_has_no_selected_score(make_run, tmp_path):
    make_run("0", overrides=["algorithm=glasu"], validation=False)
    assert sweep_table.table(tmp_path).splitlines()[1].split()[3:6] == ["accuracy", "-", "0.3333"]


def test_skipped_job(tmp_path):
    names = {
        "algorithm": "glasu",
        "dataset": "cora",
        "seed": 0,
        "compute_clock": "none",
        "timing": "causal",
        "accounting": "strict",
    }
    folder.prepare(tmp_path / "0")
    skipped = folder.summarise_unrun(status="skipped", reason="no common layout", device="cpu", **names)
    folder.write_json(tmp_path / "0" / "summary.json", skipped)
    assert sweep_table.table(tmp_path).splitlines()[1].split()[:5] == ["0", "1", "skipped", "-", "-"]


def test_no_jobs(tmp_path):
    assert sweep_table.table(tmp_path) == ""
