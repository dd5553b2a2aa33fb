"""The table at the end of a sweep."""

from vflbench.results import folder, sweep


def test_table(make_run, tmp_path):
    for job, algorithm in ((0, "glasu"), (2, "centralized_gnn"), (10, "glasu_exact")):
        make_run(
            str(job),
            algorithm,
            overrides=[f"algorithm={algorithm}", "dataset=cora", f"seed={job}"],
            validation=job != 2,
        )
    make_run("3", status="diverged", overrides=["algorithm=glasu", "dataset=cora", "seed=3"])
    (tmp_path / "10" / "summary.json").unlink()
    (tmp_path / "4" / ".hydra").mkdir(parents=True)  # failed before anything was written
    (tmp_path / "4" / ".hydra" / "overrides.yaml").write_text("- algorithm=glasu\n- dataset=cora\n- seed=4\n")
    broken = make_run("5", overrides=["algorithm=glasu", "dataset=cora", "seed=5"]).folder
    (broken / "summary.json").write_text("{")
    head, *lines = [line.split() for line in sweep.table(tmp_path).splitlines()]
    assert head == [
        "job",
        "algorithm",
        "seed",
        "status",
        "metric",
        "selected",
        "final",
        "sent",
        "communication",
        "folder",
    ]
    assert lines[0] == [
        "0",
        "glasu",
        "0",
        "completed",
        "accuracy",
        "0.3333",
        "0.3333",
        "30",
        "kB",
        "15",
        "s",
        str(tmp_path / "0"),
    ]
    assert lines[1][5:7] == ["-", "0.3333"]
    assert [line[0] for line in lines] == ["0", "2", "3", "4", "5", "10"]
    assert [" ".join(line[3:5]) for line in lines[2:]] == [
        "diverged accuracy",
        "no result",
        f"unreadable {broken}",
        "no result",
    ]


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
    assert sweep.table(tmp_path).splitlines()[1].split()[:4] == ["0", "skipped", "-", "-"]


def test_no_jobs(tmp_path):
    assert sweep.table(tmp_path) == ""
