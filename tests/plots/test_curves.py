"""Pictures: the right points, the loud labels, and files that are there."""

import re

import numpy as np
import pandas as pd
import pytest

from tests.conftest import network_option
from tests.every import few_fast
from vflbench.plots import curves
from vflbench.results import reader
from vflbench.types import DataSource, Metric, VflbenchError


def words(path):
    """The text of an SVG."""
    return re.findall(r">([^<>]+)</text>", path.read_text())


def test_points():
    curve = pd.DataFrame(
        {
            "round": [1, 2, 3, 4, 5],
            "bytes": [0, 10, 20, np.nan, 5],
            "val_accuracy": [0.1, None, 0.3, 0.4, 0.5],
            "test_accuracy": [0.2, None, 0.4, 0.5, 0.6],
        }
    )
    found = curves.points(curve, "bytes", "accuracy")
    assert found["x"].tolist() == [0, 5, 20]
    assert found["test"].tolist() == [0.2, 0.6, 0.4]
    assert found["validation"].tolist() == [0.1, 0.5, 0.3]


def test_draw_run(make_run):
    run = make_run("a")
    curves.draw_run(run)
    for name in ("curve", "bytes", "rounds"):
        assert (run.folder / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    text = words(run.folder / "curve.svg")
    assert "GLASU on Cora · us_uk · real data · seed 0" in text
    assert "communication time (s)" in text
    assert "0.6 at round 30 (selected on validation)" in text
    assert "bytes sent (MB)" in words(run.folder / "bytes.svg")
    assert "round" in words(run.folder / "rounds.svg")


@pytest.mark.slow
def test_pictures_are_deterministic_and_drawn_before_the_summary_is_there(make_run):
    run = make_run("a")
    curves.draw_run(run)
    before = {path.name: path.read_bytes() for path in run.folder.glob("*.[ps][nv]g")}
    summary = run.summary
    for name in (*before, "summary.json"):
        (run.folder / name).unlink()
    curves.draw_run(run.folder, summary)
    assert {path.name: path.read_bytes() for path in run.folder.glob("*.[ps][nv]g")} == before


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "alarm"),
    [
        ({"source": DataSource("synthetic")}, "SYNTHETIC DATA, nothing of it is real"),
        ({"source": DataSource("partial")}, "PARTLY SYNTHETIC DATA"),
        ({"source": DataSource("partial", lacks="1 of 2 rows")}, "PARTIAL DATA, 1 of 2 rows"),
        ({"status": "diverged"}, "status: diverged"),
        (
            {"source": DataSource("synthetic"), "status": "target_reached"},
            "SYNTHETIC DATA, nothing of it is real · status: target reached",
        ),
    ],
)
def test_what_is_not_real_or_not_complete_is_said_in_red(make_run, changes, alarm):
    run = make_run("a", **changes)
    curves.draw_run(run)
    for name in ("curve", "bytes", "rounds"):
        assert re.search(rf"fill: #c00000[^>]*>{alarm}</text>", (run.folder / f"{name}.svg").read_text())


@pytest.mark.slow
def test_without_communication(make_run):
    silent = make_run("silent", algorithm="standalone_gnn", pace=0, sent=0)
    ideal = make_run("ideal", pace=0)
    curves.draw_run(silent)
    curves.draw_run(ideal)
    for name in ("curve", "bytes"):
        assert {"round", "no communication: drawn against rounds"} <= set(words(silent.folder / f"{name}.svg"))
    # a network of prices, without times
    assert any(word.startswith("weighted cost") for word in words(ideal.folder / "curve.svg"))
    assert "bytes sent (MB)" in words(ideal.folder / "bytes.svg")


@pytest.mark.slow
def test_the_title_says_which_variant_of_a_data_set_it_is(make_run, tmp_path):
    runs = [make_run(name, dataset="mimic3", source=DataSource("real", name)) for name in ("demo", "full")]
    curves.draw_run(runs[0])
    assert "GLASU on MIMIC-III demo · us_uk · real data · seed 0" in words(runs[0].folder / "curve.svg")
    panels = curves.draw_runs(runs, tmp_path)["panel"].unique()
    assert list(panels) == ["MIMIC-III demo · us_uk · real data", "MIMIC-III full · us_uk · real data"], (
        "variants are not averaged together"
    )


def test_no_text_lies_on_a_curve_that_swings(make_run):
    """The selected value and the legend are outside of the axes, whatever the curve does."""
    run = make_run("a", level=lambda t: 0.5 + 0.4 * np.sin(t), rounds=range(1, 60))
    figure = curves._picture(run.curve, run.summary, "us_uk", "communication_seconds")
    figure.canvas.draw()
    (axes,), (legend,) = figure.axes, figure.legends
    assert not axes.texts and axes.get_legend() is None
    assert not legend.get_window_extent().overlaps(axes.get_tightbbox())
    assert any("(selected on validation)" in text.get_text() for text in legend.get_texts())


@pytest.mark.slow
@pytest.mark.parametrize("rounds", [(), (10,)])
def test_hardly_any_points(make_run, rounds):
    run = make_run("a", rounds=rounds)
    curves.draw_run(run)
    assert ("no evaluation was reached" in words(run.folder / "curve.svg")) == (not rounds)


@pytest.mark.slow
def test_diverged_and_minimised(make_run):
    run = make_run(
        "a", level=lambda t: float("nan") if t > 20 else 5.0 / t, metric=Metric("rmse", "min"), status="diverged"
    )
    curves.draw_run(run)
    assert "0.25 at round 20 (selected on validation)" in words(run.folder / "curve.svg")


def test_draw_fails_by_name(make_run):
    run = make_run("a")
    (run.folder / "curve.csv").unlink()
    with pytest.raises(VflbenchError, match=r"curve.csv is missing"):
        curves.draw_run(run)


def test_seeds_are_averaged_over_common_x(make_run, tmp_path):
    # Seed 0 is at 20, 40, 60 s with 0.2, 0.4, 0.6; seed 1, twice as slow, at 40, 80, 120 s with 0.4, 0.8, 1.2: common
    # are 40 to 60 s.
    runs = [make_run("0"), make_run("1", seed=1, pace=4.0, level=lambda t: t / 25)]
    table = curves.draw_runs(runs, tmp_path)
    assert table["x"].tolist() == [40, 60]
    np.testing.assert_allclose(table["mean"], [0.4, 0.6])  # both lie on 0.01 a second
    np.testing.assert_allclose(table["sd"], [0, 0], atol=1e-12)
    assert table["n"].tolist() == [2, 2]
    assert (tmp_path / "curve.png").stat().st_size > 5000
    assert "GLASU, n=2" in words(tmp_path / "curve.svg")
    written = pd.read_csv(tmp_path / "curve.csv")
    np.testing.assert_allclose(written["mean"], table["mean"], rtol=1e-15)


@pytest.mark.slow
def test_what_is_sent_once_is_a_marker_at_its_bytes(make_run, tmp_path):
    """At the value that validation chose, of each seed at its own bytes; against rounds it is a curve."""
    level = {10: 0.2, 20: 0.6, 30: 0.4}.__getitem__
    runs = []
    for seed, sent in enumerate([4000, 6000]):
        folder = make_run(str(seed), seed=seed, level=level).folder
        frame = pd.read_csv(folder / "curve.csv").assign(bytes=sent, communication_seconds=0.1)
        frame.to_csv(folder / "curve.csv", index=False)
        runs.append(reader.Run(folder))
    table = curves.draw_runs(runs, tmp_path, "bytes", "once")
    assert table[["x", "mean", "n"]].to_numpy().tolist() == [[5000.0, 0.6, 2.0]]
    assert curves.draw_runs(runs, tmp_path, "round", "rounds")["mean"].tolist() == [0.2, 0.6, 0.4]
    curves.draw_run(runs[0])
    assert any(word.startswith("0.6 at round 20") for word in words(runs[0].folder / "bytes.svg"))


@pytest.mark.slow
def test_a_gap_is_drawn_and_averaged_by_its_decades(make_run, tmp_path):
    gap = Metric("suboptimality", "min")
    levels = [lambda t: 10.0 ** (-t / 10), lambda t: 10.0 ** (-t / 5)]
    runs = [
        make_run(f"{seed}", algorithm="stcd", seed=seed, metric=gap, level=level) for seed, level in enumerate(levels)
    ]
    table = curves.draw_runs(runs, tmp_path, x="round")
    # of 1e-1 and 1e-2, 1e-2 and 1e-4, 1e-3 and 1e-6
    np.testing.assert_allclose(table["mean"], [10**-1.5, 10**-3.0, 10**-4.5])
    curves.draw_run(runs[0])
    for picture in (tmp_path / "curve.svg", runs[0].folder / "curve.svg"):
        exponents = re.findall(">\N{MINUS SIGN}</tspan>\\s*<tspan[^>]*>([0-9])<", picture.read_text())
        assert {"1", "2", "3"} <= set(exponents)  # powers of ten at its ticks


def test_lines_panels_and_what_is_left_out(make_run, tmp_path):
    us_us = {"name": "us_us"}
    runs = [
        *(make_run(f"q{q}-{seed}", seed=seed, options={"local_steps": q}) for q in (1, 4) for seed in (0, 1)),
        make_run("silent", algorithm="standalone_gnn", pace=0, sent=0, level=lambda t: 0.7),
        make_run("far", network=us_us),
        make_run("lost", status="diverged"),
    ]
    (tmp_path / "unfinished").mkdir()
    table = curves.draw_runs([*runs, reader.Run(tmp_path / "unfinished")], tmp_path)
    assert dict(table.groupby(["panel", "line"])["n"].first()) == {
        ("Cora · us_uk · real data", "GLASU · local_steps=1"): 2,
        ("Cora · us_uk · real data", "GLASU · local_steps=4"): 2,
        ("Cora · us_uk · real data", "Standalone GNN"): 1,
        ("Cora · us_us · real data", "GLASU"): 1,
    }
    text = words(tmp_path / "curve.svg")
    assert "Standalone GNN, n=1 (no communication)" in text
    assert "left out: 1 diverged, 1 unfinished" in text
    assert table[table["line"] == "Standalone GNN"]["mean"].tolist() == [0.7]


@pytest.mark.parametrize("timed", few_fast([True, False]))
def test_running_times_under_several_clocks_are_not_on_one_axis(make_run, tmp_path, timed):
    runs = [make_run("none"), make_run("other", algorithm="vfl")]
    runs[1].summary["compute_clock"] = "modelled"
    if not timed:
        runs[1].curve["communication_seconds"] = float("nan")
    table = curves.draw_runs(runs, tmp_path)
    label = "communication time (s)" if timed else "bytes sent (MB)"
    assert label in words(tmp_path / "curve.svg") and table["x"].max() == (60 if timed else 30e6)


def test_an_options_own_keys_do_not_make_a_label_longer(make_run, tmp_path):
    runs = [make_run(name, options={"model.x": 1, "kind": {"a": n}}) for n, name in enumerate("ab")]
    assert set(curves.draw_runs(runs, tmp_path)["line"]) == {f"GLASU · kind.a={n}" for n in range(2)}


@pytest.mark.slow
def test_networks_of_one_name_and_other_keys_have_panels_of_their_own(make_run, tmp_path):
    runs = [make_run(f"{ratio}", network=network_option("cost_ratio", ratio=ratio)) for ratio in (1.0, 10.0)]
    table = curves.draw_runs([*runs, make_run("far")], tmp_path)
    panels = [
        "Cora · ideal · real data",
        "Cora · cost_ratio · real data",
        "Cora · us_uk · real data",
    ]
    assert table["panel"].unique().tolist() == panels and set(table["line"]) == {"GLASU"}


@pytest.mark.slow
def test_times_of_real_processes_are_not_said_to_be_a_networks(make_run, tmp_path):
    """engine=ray uses nothing of `network`: one panel for all of its runs, apart from simulated ones."""
    runs = [make_run(name, timing="measured", network={"name": name}) for name in ("us_uk", "us_us")]
    curves.draw_run(runs[0])
    assert "GLASU on Cora · engine=ray · real data · seed 0" in words(runs[0].folder / "curve.svg")
    panels = curves.draw_runs([*runs, make_run("simulated")], tmp_path)["panel"].unique()
    assert panels.tolist() == ["Cora · engine=ray · real data", "Cora · us_uk · real data"]


def test_nothing_to_draw(tmp_path):
    assert len(curves.draw_runs([], tmp_path)) == 0
    assert (tmp_path / "curve.png").exists()


def test_what_follows_from_the_varied_key_is_not_in_the_label() -> None:
    from types import SimpleNamespace

    def made(local_steps: int, rounds: int, folder: object) -> SimpleNamespace:
        config = {"rounds": rounds, "algorithm": {"name": "glasu", "local_steps": local_steps}}
        return SimpleNamespace(folder=folder, manifest={"config": config}, summary={"algorithm": "glasu", "seed": 0})

    fake = SimpleNamespace(is_file=lambda: True)
    place = type("Place", (), {"__truediv__": lambda self, name: fake})()
    runs = [made(1, 8, place), made(2, 4, place)]
    assert list(curves._lines(runs)) == ["GLASU · local_steps=1", "GLASU · local_steps=2"]
    runs.append(made(2, 6, place))
    assert list(curves._lines(runs)) == [
        "GLASU · local_steps=1",
        "GLASU · rounds=4 · local_steps=2",
        "GLASU · rounds=6 · local_steps=2",
    ]


@pytest.mark.slow
def test_a_gap_of_zero_is_left_out_of_a_logarithmic_axis_with_a_word(make_run, tmp_path, recwarn):
    """An exact method has sent something, and has no gap that a logarithmic axis could show."""
    gap = Metric("suboptimality", "min")
    exact = [make_run(f"e{seed}", algorithm="gram_once", seed=seed, level=lambda t: 0.0, metric=gap) for seed in (0, 1)]
    silent = make_run("s", algorithm="centralized_gd", level=lambda t: 0.3 - t / 100, pace=0, sent=0, metric=gap)
    other = make_run("o", algorithm="mtcd", level=lambda t: 1 / t, metric=gap)
    table = curves.draw_runs([*exact, silent, other], tmp_path)
    assert table.loc[table["line"].str.startswith("MTCD"), "mean"].min() == pytest.approx(1 / 30)
    assert not (table["mean"] <= 0).any()
    text = words(tmp_path / "curve.svg")
    assert any(word.endswith("n=2 (no gap above 0)") for word in text)
    assert sum("(no communication)" in word for word in text) == 1
    curves.draw_run(exact[0], names=["curve"])
    assert "no gap above 0" in words(exact[0].folder / "curve.svg")
    assert not [one for one in recwarn if issubclass(one.category, RuntimeWarning)]
