"""What others may see: the ladder of demands by hand, and the page's answer under each in a real browser."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import vflbench
from tests.plots.test_report import write_run
from vflbench import cli, exposure
from vflbench.plots import curves, demands, report, report_html, values
from vflbench.plots.curves import Picture
from vflbench.plots.demands import Seen
from vflbench.plots.report_provenance import provenance
from vflbench.plots.report_terminal import show
from vflbench.results import texts
from vflbench.results.texts import result_line

KNOWN = {"send_once": False, "vfl": False, "vfl_sgd": False, "glasu": False, "graph_once": False}
ROW = "one row, replaced; covers the transcript"


def seen(*clear: str, noised: tuple[str, ...] = (), epsilon: float | None = None, guarantee: str = ROW) -> Seen:
    return Seen(clear, noised, epsilon, guarantee if noised else None, "")


def test_demands_go_from_the_weakest_to_the_strongest_and_each_hides_more() -> None:
    private = seen(noised=("binned",), epsilon=4.0)
    found = [seen("raw"), seen("embedding", "labels"), seen("embedding", "gradient"), private]
    made = demands.relevant(found)
    assert [demand.key for demand in made] == ["anything", "columns", "labels", "forms", "rows", "noise"]
    met = [[demands.unmet(one, demand) is None for one in found] for demand in made]
    three = [False, False, True, True]
    last = [[False, False, False, True]] * 2
    assert met == [[True] * 4, [False, True, True, True], three, three, *last]
    assert demands.unmet(found[1], made[2]) == "it shows labels"
    assert [demand.key for demand in demands.relevant([seen()])] == ["anything"]  # it sends nothing
    assert [demand.key for demand in demands.relevant([seen("model")])] == ["anything", "rows", "noise"][::2]


def test_noise_hides_up_to_an_epsilon() -> None:
    private = seen("gradient", noised=("binned",), epsilon=4.0)
    forms, rows = demands.relevant([private])[1:3]
    assert demands.unmet(private, forms) is None and demands.unmet(private, rows) == "it shows gradient"
    assert demands.unmet(private, forms, 3.9) == "it shows binned at epsilon 4"
    assert demands.unmet(private, rows, 3.9) == "it shows gradient, binned at epsilon 4"


def test_labels_with_an_epsilon_of_their_own_are_hidden_up_to_that() -> None:
    """Rows have 2 and labels 283, which is no noise to speak of."""
    private = Seen((), ("embedding", "labels"), 2.0, ROW, "", label_epsilon=283.0)
    _, labels, rows, noise = demands.relevant([private])
    assert demands.unmet(private, labels) == demands.unmet(private, rows) == "it shows labels at epsilon 283"
    assert demands.unmet(private, noise, 283) is None
    assert demands.unmet(private, noise, 1.9) == "it shows embedding at epsilon 2, labels at epsilon 283"


def test_epsilons_of_different_kinds_are_demands_of_their_own() -> None:
    """R0.1: unit, neighbouring relation and coverage."""
    found = [seen(noised=("raw",), epsilon=1), seen(noised=("model",), epsilon=1, guarantee="one example"), seen("raw")]
    made = demands.relevant(found)
    assert [(demand.key, demand.guarantee) for demand in made[-2:]] == [("noise", ROW), ("noise-2", "one example")]
    assert demands.unmet(found[0], made[-1]) == f"its epsilon is of another kind: {ROW}"
    assert demands.unmet(Seen(None, (), None, None, None), made[1]) == "what it shows is not known"


def test_what_is_noised_is_what_the_mechanism_says_and_epsilon_covers(tmp_path: Path) -> None:
    def of(
        name: str,
        algorithm: str,
        options: dict[str, Any] | None = None,
        noise: dict[str, Any] | None = None,
        **privacy: Any,
    ) -> Seen:
        spent = {"epsilon": 2.0, "delta": 1e-5, "unit": "u", "neighbouring": "replace_one", "covers": "transcript"}
        run = write_run(
            tmp_path / name, algorithm=algorithm, options={"name": algorithm, **(options or {})},
            privacy=spent | privacy if privacy else None, private=noise or {},
        )  # fmt: skip
        (panel,) = report.read([run.folder], KNOWN).panels
        return demands.seen(panel.settings[0])

    bins = {"form": "bins"}
    assert of("a", "send_once", bins) == Seen(("binned",), (), None, None, "passive to active: binned")
    private = of("b", "send_once", bins, mechanism="rr_bins")
    assert (private.clear, private.noised, private.served) == ((), ("binned",), ("binned",))
    assert private.words == "binned columns with noise (predicted rows without)"
    assert of("k", "send_once", bins, {"serving": "noisy"}, mechanism="rr_bins").words == "binned columns with noise"
    assert (private.epsilon, private.guarantee) == (2, "u, replaced; covers the transcript")
    assert of("c", "send_once", bins, mechanism="rr_bins", epsilon=None).clear == ("binned",)  # an infinite one
    assert of("d", "pubsub_vfl", mechanism="gdp_embedding").clear == ("gradient", "labels")
    assert of("l", "pubsub_vfl", mechanism="gaussian_gradient").noised == ("gradient", "labels")
    assert of("e", "graph_once", {"form": "raw"}, mechanism="gaussian_embedding").clear == ("labels", "edges")
    model = of("f", "vfl_sgd", mechanism="dp_sgd", covers="model")
    assert {"embedding", "gradient", "labels"} <= set(model.clear or ())
    joint = of("g", "vfl_sgd", noise={"prediction_noise": 1.0}, mechanism="tablepuppet", label_unit="a label")
    assert joint.clear == () and str(joint.guarantee).endswith("; labels at an epsilon of their own")
    budgets = {"unit": "a row", "label_unit": "a label", "label_epsilon": 400.0}
    weak = of("j", "vfl_sgd", noise={"prediction_noise": 1.0}, mechanism="tablepuppet", **budgets)
    assert "labels at epsilon 400" in str(demands.unmet(weak, demands.relevant([weak])[-1]))
    assert of("h", "centralized_join").clear == ("raw", "labels")  # all data in one place
    assert of("i", "somebodys").clear is None


def answered(folder: Path) -> list[list[str]]:
    found = report.read([folder], KNOWN)
    (panel,) = found.panels
    return report.answers(found, panel)


def test_the_answers_by_hand(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """graph_once shows raw columns for 1,000 bytes a round, GLASU embeddings for three times as much."""
    write_run(tmp_path / "a", algorithm="graph_once", options={"name": "graph_once", "form": "raw"})
    write_run(tmp_path / "b", evaluations=9)
    open_to_all, hidden, labels, *_ = answered(tmp_path)
    assert open_to_all == ["anything", "Graph once", "3 kB", "0.9000", "–", "raw columns, labels, edges"]
    assert hidden[:3] == ["no raw columns", "GLASU", "9 kB"] and hidden[-1] == "embedding, labels"
    assert labels[:2] == ["no raw columns, no labels", "no run here"]
    found = report.read([tmp_path], KNOWN)
    text = report.to_markdown(found)
    assert "What may others see?" in text and "| no raw columns | GLASU | 9 kB |" in text
    console = Console(record=True, width=200)
    show(found, console)
    assert "no raw columns, no labels" in console.export_text()
    header, *lines = report.to_csv(found).splitlines()
    assert {"in_clear", "unit", "neighbouring", "covers"} <= set(header.split(","))
    assert '"raw, labels, edges"' in lines[0]
    assert cli.command(["report", str(tmp_path), "--out", str(tmp_path / "page.html")]) == 0
    said = capsys.readouterr().out
    assert "others may see no raw columns: GLASU, 9 kB to the target, 0.9000; they see: embedding, labels" in said


def test_an_unverified_method_meets_no_requirement_and_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exposure, "unverified", lambda name: name == "glasu")
    write_run(tmp_path / "a", algorithm="graph_once", options={"name": "graph_once", "form": "raw"})
    write_run(tmp_path / "b")
    assert answered(tmp_path)[1][:2] == ["no raw columns", "no run here"]
    found = report.read([tmp_path], KNOWN)
    words = {setting.algorithm: demands.seen(setting).words for setting in found.panels[0].settings}
    assert words["glasu"] == "embedding, labels (unverified)" and "unverified" not in words["graph_once"]
    assert "Unverified, so no privacy requirement is met: GLASU" in report.caveat(found.panels[0])
    page = report_html.to_html(found, {})
    assert '"verified":false' in page and f'"unverified":"{exposure.UNVERIFIED}"' in page


def test_who_lacks_nothing_but_a_smaller_epsilon_is_named(tmp_path: Path) -> None:
    spent = {"epsilon": 12.0, "delta": 1e-5, "unit": "u", "neighbouring": "replace_one", "covers": "transcript"}
    options = {"name": "send_once", "form": "bins"}
    write_run(tmp_path / "a", algorithm="send_once", options=options, privacy=spent | {"mechanism": "rr_bins"})
    *_, noise = answered(tmp_path)
    assert noise[1] == "no run here; Send once has epsilon 12" and noise[2:] == ["–"] * 4


def test_kinds_of_epsilon_are_told(tmp_path: Path) -> None:
    for place, unit in enumerate(("a row", "an example")):
        spent = {"mechanism": "gaussian_embedding", "epsilon": 2.0, "unit": unit, "covers": "model"}
        write_run(tmp_path / unit, options={"lr": place}, privacy=spent)
    found = report.read([tmp_path], KNOWN)
    assert (
        "Epsilons are of 2 kinds, which are not compared (GLASU: a row, changed; covers the model; "
        in report.caveat(found.panels[0])
    )
    assert "2 (of the model only)" in report.to_markdown(found)


PRIVATE = {"mechanism": "dp_sgd", "epsilon": 2.0, "delta": 1e-5, "unit": "an example", "neighbouring": "add_remove"}
FOUND = {"name": "label_inference", "success": 0.98, "floor": 0.53, "interval": [0.43, 0.47]}


def test_an_epsilon_of_the_model_only_is_never_bare(tmp_path: Path) -> None:
    """R0.2."""
    run = write_run(tmp_path / "a", privacy=PRIVATE | {"covers": "model"}, extra={"attack": FOUND})
    assert "epsilon 2 (of the model only); label_inference finds 0.98, a guess 0.53" in result_line(run.summary)
    found = report.read([tmp_path], KNOWN)
    (row,) = report.table(found)
    said = "2 (of the model only); label_inference finds 0.98, a guess 0.53"
    assert (row["epsilon"], row["covers"], row["epsilon_words"]) == (2, "model", said)
    assert report.cells(row)[report.HEADS.index("epsilon")] == said
    assert f'"epsilon_words":"{said}"' in report_html.to_html(found, {})
    assert "epsilon 2 (of the model only), delta 1e-05" in provenance([run])["privacy"][0][0]
    console = Console(record=True, width=200)
    show(found, console)
    text = console.export_text()
    assert "2 (of the model only); label" in text
    covered = write_run(tmp_path / "b", privacy=PRIVATE | {"covers": "transcript"})
    assert "epsilon 2 · real data" in result_line(covered.summary)


@pytest.mark.parametrize(
    ("spent", "words"),
    [
        (1.5, "2, of labels 1.5"),
        ("inf", "2, of labels inf (no guarantee)"),
        ("much", "2"),  # somebody's own file
    ],
)
def test_an_epsilon_of_labels_stands_beside_that_of_rows(spent: Any, words: str, tmp_path: Path) -> None:
    budgets = {"covers": "transcript", "label_unit": "a label", "label_epsilon": spent}
    run = write_run(tmp_path / "a", privacy=PRIVATE | budgets)
    assert f"epsilon {words} · real data" in result_line(run.summary)
    (row,) = report.table(report.read([tmp_path], KNOWN))
    assert (row["epsilon"], row["epsilon_words"]) == (2, words)
    of_labels = write_run(tmp_path / "b", privacy=PRIVATE | budgets | {"unit": "a label"})
    assert "epsilon 2 · real data" in result_line(of_labels.summary)  # the same unit: one epsilon


@pytest.mark.parametrize(
    "attack",
    [
        None,
        {},
        {**FOUND, "success": 0.5},
        {**FOUND, "interval": [-0.01, 0.2]},
        {**FOUND, "floor": None},
    ],
)
def test_an_attack_that_finds_no_more_than_a_guess_is_not_told(attack: dict[str, Any] | None) -> None:
    """R0.3."""
    assert texts.attack_in_words(attack) is None
    older = {"name": "label_inference", "success_rate": 0.98, "floor": 0.53}
    assert texts.attack_in_words({"success": 1, "floor": 0, "interval": ["?"]}) == "an attack finds 1, a guess 0"
    assert texts.attack_in_words(older) == "label_inference finds 0.98, a guess 0.53"


def test_without_noise_there_is_no_guarantee(tmp_path: Path) -> None:
    """R2.5; before there was `inf` the epsilon of such a run was null."""
    for place, epsilon in enumerate((float("inf"), None)):
        run = write_run(
            tmp_path / str(place), options={"lr": place}, privacy=PRIVATE | {"covers": "model", "epsilon": epsilon}
        )
        assert run.summary["privacy"]["epsilon"] == float("inf") and "epsilon inf (no guarantee)" in result_line(
            run.summary
        )
    assert '"epsilon": "inf"' in (tmp_path / "0" / "summary.json").read_text()
    found = report.read([tmp_path], KNOWN)
    assert {report.cells(row)[report.HEADS.index("epsilon")] for row in report.table(found)} == {"inf (no guarantee)"}
    assert demands.caveat(found.panels[0].settings) == ""  # no kind of epsilon
    report_html.to_html(found, {})


@pytest.mark.slow
def test_epsilons_of_different_kinds_share_no_axis(tmp_path: Path) -> None:
    """R0.1."""
    kinds = [("an example", "model"), ("an example", "transcript"), ("a row", "transcript")]
    runs = [
        write_run(tmp_path / f"run{place}", privacy=PRIVATE | {"unit": unit, "covers": covers})
        for place, (unit, covers) in enumerate(kinds)
    ]
    for run in runs:
        run.curve["epsilon"] = [0.5, 1.0, 2.0]
    panels = set(curves.draw_runs(runs, tmp_path, "epsilon", "by_epsilon")["panel"])
    assert len(panels) == 3 and all(any(f"covers the {covers}" in title for title in panels) for _, covers in kinds)
    assert len(set(curves.draw_runs(runs, tmp_path, "round", "by_round")["panel"])) == 1
    figure = curves.draw_panels(Picture("curves", "epsilon"), {"one": {"a": runs[:1], "b": runs[1:]}}, tmp_path / "x")
    assert list(zip(figure["panel"].unique(), figure.groupby("panel", sort=False)["line"].first(), strict=True)) == [
        ("one · an example, added or removed; covers the model", "a"),
        ("one · an example, added or removed; covers the transcript", "b"),
        ("one · a row, added or removed; covers the transcript", "b"),
    ]


@pytest.mark.slow
def test_values_against_epsilon_have_a_panel_for_each_kind_of_it(tmp_path: Path) -> None:
    """R0.1, in the pictures of figures."""
    table = [
        {
            **{"algorithm.name": name, "privacy.epsilon": epsilon, "guarantee": kind, "metric": "auroc"},
            **{"selected": 0.9, "selected_sd": 0.01, "seeds": 3, "data_source": "real"},
        }
        for name, kind in (("vfl", "a row"), ("avfl", "a row"), ("rfl_sgd", "a label"))
        for epsilon in (1.0, 8.0)
    ]

    def panels(x: str) -> dict[str, set[str]]:
        picture = Picture("values", x, y="selected", lines=["algorithm.name"])
        drawn = values.draw_values(picture, table, [], [], tmp_path / x, "", {})
        return {str(title): set(lines) for title, lines in drawn.groupby("panel")["line"]}

    assert panels("privacy.epsilon") == {"a row": {"VFL", "AVFL"}, "a label": {"RFL-SGD"}}
    assert list(panels("metric")) == [""]


# --- the page ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Send once with bins, in clear and with noise at two epsilons, and VFL."""
    root = tmp_path_factory.mktemp("demands")
    words = ["dataset=breast_cancer", "dataset.problem=learning", "rounds=2", "engine.threads=1", "plot=none"]
    words += ["target=0.2", "network=us_us", "floor=none"]
    private = ["algorithm=send_once", "privacy=rr_bins"]
    jobs = {"bins": ["algorithm=send_once"], "vfl": ["algorithm=vfl"]}
    jobs |= {f"noise_{epsilon}": [*private, f"privacy.epsilon={epsilon}"] for epsilon in (0.1, 0.5)}
    for name, job in jobs.items():
        vflbench.run([*job, *words, f"hydra.run.dir={root / name}"])
    return root


@pytest.fixture
def opened(browser: Any, runs: Path, tmp_path: Path) -> Iterator[Any]:
    page = tmp_path / "report.html"
    page.write_text(report_html.to_html(report.read([runs], KNOWN), {"us_us": (67.0, 1.15)}), encoding="utf-8")
    browser.get_log("browser")

    def show(view: str = "") -> Any:
        browser.get("about:blank")  # else only the fragment changes, and nothing is read again
        browser.get(page.as_uri() + view)
        return browser

    yield show
    assert browser.get_log("browser") == []


def table(page: Any) -> dict[str, str]:
    rows = page.find_elements("css selector", "#by_demand tbody tr")
    return {row.get_attribute("data-demand"): row.text for row in rows}


def ranked(page: Any) -> list[str]:
    return list(page.execute_script("return ranking().filter((row) => row.ranked).map((row) => title(row.line))"))


@pytest.mark.slow
def test_the_page_asks_first_and_answers_under_each_demand(opened: Any, runs: Path) -> None:
    page = opened("#axis=bytes")
    texts = table(page)
    assert list(texts) == ["anything", "labels", "forms", "rows", "noise"]  # VFL's gradients give labels away
    assert "Send once" in texts["forms"] and "binned columns with noise" in texts["forms"]
    assert (
        "binned columns with noise (predicted rows without), epsilon" in texts["noise"]
        and "one row of one passive party, replaced" in texts["noise"]
    )
    answers = {words: best for words, best, *_ in answered(runs)}
    for key, words in (("anything", "anything"), ("forms", "no columns in any form, no labels")):
        assert answers[words] in texts[key]  # as the terminal says
    assert len(ranked(page)) == 4
    for key in ("forms", "rows"):
        page.find_element("css selector", f"#by_demand input[value={key}]").click()
        assert f"demand={key}" in page.execute_script("return location.hash")
        assert page.execute_script("return document.activeElement.value") == key
    assert sorted(name[:9] for name in ranked(page)) == ["Send once"] * 2
    answer, note = page.find_element("id", "answer").text, page.find_element("id", "not_ranked").text
    assert "where others may see only models and sums: Send once" in answer
    assert (
        "VFL · privacy=none is not ranked: it shows embedding, gradient, labels." in note and "it shows binned." in note
    )
    assert [item.text[:9] for item in page.find_elements("css selector", ".legend li")] == ["Send once"] * 2
    view = page.execute_script("return location.hash")
    again = opened(view)
    assert (
        len(ranked(again)) == 2
        and again.find_element("css selector", "#by_demand input:checked").get_attribute("value") == "rows"
    )
    for nonsense in ("#demand=__proto__", "#demand=", "#demand=noise-7", "#demand=columns"):
        assert len(ranked(opened(nonsense))) == (2 if "noise" in nonsense else 4)


@pytest.mark.slow
def test_a_limit_of_epsilon_holds_for_every_demand_and_kinds_are_apart(opened: Any) -> None:
    from selenium.webdriver import Keys

    page = opened("#axis=bytes&demand=noise")
    epsilons = [one for one in page.execute_script("return panel().lines.map((line) => line.epsilon)") if one]
    assert len(epsilons) == 2
    page.find_element("id", "most_epsilon").send_keys(str(sum(epsilons) / 2), Keys.ENTER)
    (within,) = ranked(page)
    assert "epsilon=0.1" in within
    page.find_element("id", "most_epsilon").send_keys(Keys.CONTROL + "a", Keys.NULL, "0.001", Keys.ENTER)
    assert "none of these runs within your limits" in table(page)["noise"]
    page = opened("#axis=bytes&demand=noise&noise=0.2")
    assert len(ranked(page)) == 1 and "of epsilon ≤ 0.2\n" in table(page)["noise"]
    assert "it shows binned at epsilon 0.5" in page.find_element("id", "not_ranked").text
    assert page.find_element("id", "noise").get_attribute("value") == "0.2"
    page.find_element("id", "noise").send_keys(Keys.CONTROL + "a", Keys.NULL, "0.05", Keys.ENTER)
    assert "none of these runs; " in table(page)["noise"] and "has epsilon 0.1" in table(page)["noise"]
    assert "noise=0.05" in page.execute_script("return location.hash")
    about = (
        "{clear: [], noised: ['labels', 'embedding'], epsilon: 2, label_epsilon: 283, guarantee: null, verified: true}"
    )
    why = page.execute_script(f"return unmet({about}, {{hides: ['labels', 'embedding'], guarantee: null}}, 10)")
    assert why == "it shows labels at epsilon 283"
    page = opened("#axis=epsilon")
    page.execute_script("panel().lines.find((line) => line.guarantee).guarantee = 'another'; draw();")
    assert "its epsilon is of another kind, and is not compared: " in page.find_element("id", "not_ranked").text
    page.execute_script("state.axis = 'bytes'; draw();")
    assert len(ranked(page)) == 4
