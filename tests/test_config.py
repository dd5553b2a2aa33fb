"""Validation: every problem of a command line at once, of a sweep before its first job."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, make_dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
import yaml

from tests.every import few_fast
from vflbench import config
from vflbench.cli.completion import candidates
from vflbench.config.typed import convert_value
from vflbench.federation import delays
from vflbench.results.identity import config_hash
from vflbench.results.network import network_label
from vflbench.types import ConfigError, Problem, Range, VflbenchError, closest

BASE = ("algorithm=toy", "dataset=toy_graph")
pytestmark = pytest.mark.usefixtures("toy")


def plan(
    *overrides: str, multirun: bool = False, user_dir: Path | None = None, base: tuple[str, ...] = BASE
) -> config.Plan:
    with config.session([*base, *overrides], user_dir) as hydra:
        return config.plan(hydra, [*base, *overrides], multirun)


def problems(*overrides: str, **how: Any) -> dict[str, Problem]:
    with pytest.raises(ConfigError) as caught:
        plan(*overrides, **how)
    found = {problem.key: problem for problem in caught.value.problems}
    assert len(found) == len(caught.value.problems), "a key was told twice"
    return found


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    """A --config-dir."""
    (tmp_path / "algorithm").mkdir()
    (tmp_path / "experiment").mkdir()
    return tmp_path


def test_defaults_and_types_of_a_run() -> None:
    run = plan("rounds=7", "target=1", "algorithm.fanout=[3,2]").config
    assert run is not None
    assert (run.rounds, run.target, run.algorithm.fanout, run.network.client_server.latency_ms) == (
        7,
        1.0,
        [3, 2],
        136.0,
    )
    assert isinstance(run.target, float)
    assert (run.seed, run.model, run.privacy.name, run.topology.name, run.engine.name) == (
        0,
        None,
        "none",
        "star",
        "simulated",
    )


def test_unknown_option_and_wrong_type_are_told_together() -> None:
    found = problems("algorithm.local_steps=zero", base=("algorithm=toyy", "dataset=toy_graph"))
    assert found["algorithm"].closest == "toy"
    assert [closest(word, ("gdp_embedding", "label_dp", "label_rr")) for word in ("GDP", "la", "")] == [
        "gdp_embedding",  # the only one that begins so
        None,
        None,
    ]
    assert found["algorithm.local_steps"].allowed == "must be an integer"
    assert problems(base=("algorithm=tooy", "dataset=toy_grph"))["algorithm"].closest == "toy"


def test_the_range_of_a_single_link_is_its_kinds(mine: Path) -> None:
    (mine / "network").mkdir()
    links = (
        'links: {"client_0->server": {latency_ms: -3, bandwidth_gbps: 0}, "server->client_0": {latency_ms: 3, '
        "bandwidth_gbps: 1}}\n"
    )
    (mine / "network" / "slow.yaml").write_text("defaults: [us_uk]\nname: slow\n" + links)
    found = problems("network=slow", user_dir=mine)
    assert set(found) == {f"network.links.client_0->server.{key}" for key in ("latency_ms", "bandwidth_gbps")}


def test_numbers_that_training_cannot_hold() -> None:
    found = problems(
        "algorithm.lr=1e31", "seed=9223372036854775808", f"algorithm.layers={10**400}", f"max_bytes={10**400}"
    )
    assert set(found) == {"algorithm.lr", "seed", "algorithm.layers", "max_bytes"}
    assert "in size" in found["algorithm.lr"].allowed and "64 bits" in found["seed"].allowed
    assert plan("algorithm.lr=1e30", "seed=9223372036854775807").config is not None


def test_a_key_cannot_be_removed() -> None:
    assert set(problems("~algorithm.lr", "~seed", "~algorithm", "seeds=1")) == {
        "~algorithm.lr",
        "~seed",
        "~algorithm",
        "seeds",
    }


def test_a_key_of_another_backbone_is_refused_naming_who_has_it() -> None:
    glasu = ("algorithm=glasu", "dataset=digits_graph", "model=gcn")
    assert problems("model.alpha=0.3", base=glasu)["model.alpha"].allowed == "model=gcn has no such key; gcnii has it"
    assert plan("model.dropout=0.2", base=glasu).config is not None


def test_every_kind_of_problem_in_one_list() -> None:
    found = problems(
        *(
            "seed=-1",
            "eval_every=0",
            "algorithm.lr=null",
            "algorithm.combine=av",
            "algorithm.fanout=[1,a]",
            "algorithm.layrs=3",
        ),
        *(
            "network.timing=rond",
            "network.client_server.latency_ms=fast",
            "device=gpu",
            "local_steps=2",
            "topology.probability=0.5",
        ),
        *("+more=1", "dry_run=yes", "privacy=gausian_embedding", "word"),
    )
    assert found["seed"].allowed == "must be at least 0"
    assert found["algorithm.combine"].closest == "avg"
    assert "algorithm.fanout[1]" in found
    assert found["algorithm.layrs"].closest == "algorithm.layers"
    assert found["network.timing"].closest == "round"
    assert found["local_steps"].closest == "algorithm.local_steps"
    assert found["topology.probability"].allowed == "topology=star has no such key; erdos_renyi has it"
    assert found["privacy"].closest == "gaussian_embedding"
    rest = {"eval_every", "algorithm.lr", "network.client_server.latency_ms", "device", "more", "dry_run", "word"}
    assert rest <= set(found) and len(found) == len(rest) + 8


def test_what_does_not_fit_together_is_told_with_the_rest() -> None:
    found = problems(
        "dataset=toy_rows", "privacy=gaussian_embedding", "topology=complete", "algorithm.aggregations=5", "rounds=0"
    )
    assert set(found) == {"dataset", "privacy", "topology", "algorithm.aggregations", "rounds"}
    assert "toy_graph" in found["dataset"].allowed and "toy_rows" not in found["dataset"].allowed
    assert found["privacy"].allowed == "toy can have: none"


def test_hydras_own_keys_are_told_with_the_rest() -> None:
    assert set(problems("hydra.run.dr=x", "seed=x")) == {"hydra.run.dr", "seed"}


def test_several_values_without_m_and_unreadable_values() -> None:
    found = problems("seed=1,2", "algorithm.fanout=[1,")
    assert "add -m" in found["seed"].allowed
    assert "cannot be read" in found["algorithm.fanout"].allowed


def test_a_sweep_is_checked_value_by_value_and_expanded_in_hydras_order() -> None:
    found = problems(
        "algorithm.layers=1,2,x", "seed=range(-1,2)", "dataset=toy_graph,toy_gaph", "network=glob(u*)", multirun=True
    )
    assert set(found) == {"algorithm.layers", "seed", "dataset"}
    sweep = plan("dataset=toy_graph,toy_rows", "seed=range(0,2)", "network=glob(us_*)", "rounds=3", multirun=True)
    assert sweep.jobs is not None and len(sweep.jobs) == 8 and sweep.config is None
    assert sweep.jobs[1] == ["algorithm=toy", "dataset=toy_graph", "seed=0", "network=us_us", "rounds=3"]
    assert sweep.swept == {"dataset", "seed", "network"}


def test_the_users_own_option_is_checked_too(mine: Path) -> None:
    (mine / "algorithm" / "good.yaml").write_text("name: toy\nlocal_steps: 5\n")
    (mine / "algorithm" / "bad.yaml").write_text("name: toy\nlocal_steps: many\nextra: 3\n")
    (mine / "algorithm" / "lost.yaml").write_text("name: nowhere\n")
    (mine / "algorithm" / "broken.yaml").write_text("name: [toy\n")
    run = plan("algorithm=good", user_dir=mine).config
    assert run is not None and (run.algorithm.local_steps, run.algorithm.layers) == (5, 4)
    assert set(problems("algorithm=bad", user_dir=mine)) == {"algorithm.local_steps", "algorithm.extra"}
    assert set(problems("algorithm=bad,good", multirun=True, user_dir=mine)) == {
        "algorithm.local_steps",
        "algorithm.extra",
    }
    assert "algorithm.name" in problems("algorithm=lost", user_dir=mine)
    with pytest.raises(VflbenchError, match=r"broken\.yaml"):
        plan("algorithm=broken", user_dir=mine)


@pytest.mark.slow
def test_a_preset_that_sweeps(mine: Path) -> None:
    (mine / "experiment" / "p.yaml").write_text(
        "# @package _global_\ndefaults:\n  - override /algorithm: toy\n  - override /dataset: toy_graph\nrounds: 5\n"
        "hydra:\n  mode: MULTIRUN\n  sweeper:\n    params:\n      seed: 0,1\n      algorithm.lr: 0.1,0.2\n"
    )
    assert len(plan("experiment=p", base=(), user_dir=mine).jobs or ()) == 4
    narrowed = plan("experiment=p", "seed=5", base=(), user_dir=mine)
    assert narrowed.jobs is not None and [job[0] for job in narrowed.jobs] == ["seed=5", "seed=5"]
    assert "experiment" in problems("experiment=p,p", multirun=True, base=(), user_dir=mine)
    assert "algorithm.lr" in problems("experiment=p", "algorithm.lr=0.1,fast", base=(), user_dir=mine)


FIGURE = """\
title: presets:
runs: [{experiment: own/wide}]
presets:  # a comment
  # another
  own/wide:  # the first

    # its own
    defaults:
      - override /algorithm: toy
    seed: 4
# at the margin
    rounds: >-
      7

  own/wide_few:
    # rounds: 1
    rounds: ${idiv:9,3}"""


@pytest.mark.slow
def test_a_preset_is_found_in_the_file_of_its_figure(mine: Path) -> None:
    """The longest that its name begins with; a file of its own comes first."""
    figures = mine / "figure" / "own"
    figures.mkdir(parents=True)
    (figures / "wide.yaml").write_text(FIGURE)
    more = "presets:\n    own/wide_few_more:\n        rounds: 5\n    own/lost:\n        rounds: 6\nnames: {}\n"
    (figures / "wide_few.yaml").write_text(f"title: t\n{more}")
    (mine / "experiment" / "own").mkdir()
    (mine / "experiment" / "own" / "alone.yaml").write_text("# @package _global_\nrounds: 8\n")
    assert candidates(f"vflbench --config-dir {mine} experiment=own/wide_") == [
        "experiment=own/wide_few",
        "experiment=own/wide_few_more",
    ]
    for name, rounds, seed in (("wide", 7, 4), ("wide_few", 3, 0), ("wide_few_more", 5, 0), ("alone", 8, 0)):
        run = plan(f"experiment=own/{name}", user_dir=mine).config
        assert run is not None and (run.rounds, run.seed) == (rounds, seed), name
    assert "own/wide" in problems("experiment=own/wid", user_dir=mine)["experiment"].allowed
    assert "experiment" in problems("experiment=own/lost", user_dir=mine)  # as its name begins with no figure's


def test_tuned_values_count_unless_the_command_says_otherwise(mine: Path) -> None:
    (mine / "tuned" / "toy").mkdir(parents=True)
    (mine / "tuned" / "toy" / "toy_graph.yaml").write_text("# @package _global_\nrounds: 77\nalgorithm:\n  lr: 0.7\n")
    tuned, typed = plan(user_dir=mine).config, plan("rounds=3", user_dir=mine).config
    assert tuned is not None and (tuned.rounds, tuned.algorithm.lr) == (77, 0.7)
    assert typed is not None and (typed.rounds, typed.algorithm.lr) == (3, 0.7)


@pytest.mark.parametrize("word", ["tuned@_global_=vfl/bnak", "tuned@_global_=vfl", "tuned@_global_=null"])
def test_a_text_that_names_no_tuned_values_is_refused(word: str) -> None:
    with pytest.raises(ConfigError, match="names no tuned values; none, or ALGORITHM/DATASET"):
        plan("algorithm=vfl", "dataset=bank", word)


@pytest.mark.slow
def test_tuned_values_of_another_network_are_left_out(mine: Path) -> None:
    (mine / "tuned" / "vfl").mkdir(parents=True)
    (mine / "tuned" / "vfl" / "breast_cancer.yaml").write_text("# @package _global_\nmodel:\n  embedding: 3\n")
    run = ("algorithm=vfl", "dataset=breast_cancer", "dataset.problem=learning")
    own, other = plan(*run, base=(), user_dir=mine).config, plan(*run, "model=linear", base=(), user_dir=mine).config
    assert own is not None and own.model.embedding == 3
    assert other is not None and other.model.name == "linear"
    options = {"user_dir": mine, "base": ()}
    (mine / "tuned" / "vfl" / "breast_cancer.yaml").write_text("# @package _global_\nmodel:\n  embeding: 3\n")
    assert "model.embeding" in problems(*run, **options)
    (mine / "tuned" / "vfl" / "breast_cancer.yaml").write_text("# @package _global_\nmodel:\n  embedding: 3\n")
    assert "model.embedding" in problems(*run, "model=linear", "model.embedding=3", base=(), user_dir=mine)


@pytest.mark.slow
def test_values_tuned_with_noise_count_instead_of_the_others(mine: Path) -> None:
    run = ("algorithm=vfl", "dataset=breast_cancer", "dataset.problem=learning")
    entries = {
        "breast_cancer": {"algorithm.lr": 0.5, "algorithm.batch_size": 7},
        "breast_cancer/gdp_embedding": {"algorithm.lr": 0.25},
        "bank": {"algorithm.lr": 0.125},
    }
    (mine / "tuned").mkdir()
    (mine / "tuned" / "vfl.yaml").write_text(yaml.safe_dump(entries))
    for words, values in (
        ([], (0.5, 7)),
        (["privacy=gdp_embedding"], (0.25, 256)),
        (["privacy=label_rr"], (0.5, 7)),
        (["privacy=gdp_embedding", "tuned/private@_global_=none"], (0.5, 7)),
        (["tuned@_global_=none"], (0.001, 256)),
        (["tuned@_global_=vfl/bank"], (0.125, 256)),
        (["tuned/private@_global_=gdp_embedding/vfl/breast_cancer"], (0.25, 256)),
    ):
        config = plan(*run, *words, base=(), user_dir=mine).config
        assert config is not None and (config.algorithm.lr, config.algorithm.batch_size) == values, words


@pytest.mark.slow
def test_a_run_and_a_sweep_leave_values_of_another_network_out_too(tmp_path: Path) -> None:
    from vflbench import cli

    words = ["algorithm=vfl", "dataset=bank", "dataset.source=synthetic", "dataset.samples=300", "epochs=1"]
    words += ["privacy=gdp_embedding", "plot=none", "floor=none"]
    assert cli.command([*words, "model=linear", f"hydra.run.dir={tmp_path / 'run'}"]) == 0
    assert "embedding" not in (tmp_path / "run" / ".hydra" / "config.yaml").read_text().split("privacy:")[0]
    assert cli.command(["-m", *words, "model=linear,mlp10", f"hydra.sweep.dir={tmp_path / 'sweep'}"]) == 0
    assert len([*(tmp_path / "sweep").glob("*/summary.json")]) == 2


def test_another_hydra_application_in_this_process_is_left_alone() -> None:
    from hydra.core.global_hydra import GlobalHydra

    before = GlobalHydra.instance().hydra
    plan()
    assert GlobalHydra.instance().hydra is before
    with pytest.raises(VflbenchError, match="no such folder"):
        plan(user_dir=Path("nowhere"))


@dataclass
class Inner:
    size: int = 1


@dataclass
class Outer:
    needed: int
    inner: Inner = field(default_factory=Inner)
    either: int | str | None = None
    pair: tuple[int, float] = (1, 1.0)
    names: dict[str, Inner] = field(default_factory=dict)
    kind: Literal["a", "b"] = "a"


@pytest.fixture
def convert() -> Iterator[Any]:
    def convert(values: Mapping[str, Any]) -> tuple[Any, dict[str, str]]:
        found: list[Problem] = []
        return convert_value(Outer, values, "o", found), {problem.key: problem.allowed for problem in found}

    yield convert


def test_conversion_of_nested_types(convert: Any) -> None:
    good, none = convert(
        {"needed": 1, "inner": {"size": 2}, "either": "x", "pair": [1, 2], "names": {"p": {"size": 3}}, "kind": "b"}
    )
    assert good == Outer(1, Inner(2), "x", (1, 2.0), {"p": Inner(3)}, "b") and not none
    _, found = convert(
        {"inner": 3, "either": [1], "pair": [1], "names": {"p": {"sise": 3}}, "kind": "c", "needed": True}
    )
    assert set(found) == {"o.inner", "o.either", "o.pair", "o.names.p.sise", "o.kind", "o.needed"}
    assert convert({})[1] == {"o.needed": "needs a value"}
    assert convert({"needed": 1, "pair": [1, float("nan")]})[1] == {"o.pair[1]": "must be a number"}


def test_the_packaged_folder_is_absolute() -> None:
    assert config.config_dir().is_absolute() and (config.config_dir() / "config.yaml").is_file()


@pytest.mark.parametrize("sweep", [False, True])
def test_a_password_in_a_url_is_refused_before_anything_is_written_and_not_repeated(sweep: bool) -> None:
    with pytest.raises(ConfigError, match="password_env") as refused, config.session() as hydra:
        more = ["seed=0,1"] if sweep else []
        config.plan(hydra, ["dataset=sql", "dataset.tables.x.url=postgresql://me:geheim@host/db", *more], sweep)
    assert "geheim" not in str(refused.value)


def test_a_key_that_the_users_file_leaves_out_can_be_added(mine: Path) -> None:
    """A file of the user's in a data set's place need not list every key; naming one says how."""
    (mine / "dataset").mkdir()
    (mine / "dataset" / "star_schema.yaml").write_text("name: star_schema\nrows: 100\n")
    base = ("algorithm=rfl_sgd_v", "dataset=star_schema")
    told = problems("dataset.width=3", user_dir=mine, base=base)["dataset.width"]
    assert (
        "your file of dataset=star_schema does not list this key: write it there, or +dataset.width=3" in told.allowed
    )
    assert plan("+dataset.width=3", user_dir=mine, base=base).cfg.dataset.width == 3


@pytest.mark.parametrize(
    "words", few_fast([["experiment=leasgd/fig2"], ["dataset=cora", "+algorithm.extra=1", "hydra.mode=RUN"]])
)
def test_what_a_session_remembers_is_what_hydra_itself_reads(words: list[str]) -> None:
    from hydra import compose, initialize_config_dir
    from omegaconf import OmegaConf

    for _ in range(2):  # the second time all of it is remembered
        with config.session(words) as hydra:
            twice = [config.compose(hydra, words) for _ in range(2)]
    conf = config.config_dir()  # plain files come from here, and what our kind of source finds from the search path
    with initialize_config_dir(str(conf), version_base="1.3"):
        beside = f"hydra.searchpath=[vflbench://{conf}]"
        expected = OmegaConf.to_container(compose("config", [*words, beside], return_hydra_config=True))
    for key in ("runtime", "job", "searchpath", "overrides"):
        expected["hydra"].pop(key)
    for cfg in twice:
        found = OmegaConf.to_container(cfg)
        for key in ("runtime", "job", "searchpath", "overrides"):  # these say who started Hydra, and how
            found["hydra"].pop(key)
        assert found == expected


def test_an_option_that_was_edited_is_read_again(mine: Path) -> None:
    for steps in (3, 4):
        (mine / "algorithm" / "good.yaml").write_text(f"name: toy\nlocal_steps: {steps}\n")
        run = plan("algorithm=good", user_dir=mine).config
        assert run is not None and run.algorithm.local_steps == steps


CLOCK = [
    *((f"network.{kind}.latency_ms", None, 1e9) for kind in ("client_server", "client_client")),
    *((f"network.{kind}bandwidth_gbps", 1e-9, 1e9) for kind in ("client_server.", "client_client.", "server_")),
    ("network.ratio", 1e-9, 1e9),
    *((f"compute.{key}", None, 1e6) for key in ("base_seconds", "seconds_per_unit", "batch_latency", "server_seconds")),
    ("compute.core_cap", 1e-6, 1e6),
]


@pytest.mark.parametrize(
    ("key", "low", "high"),
    [pytest.param(*found, marks=[] if n % 4 == 0 else [pytest.mark.slow]) for n, found in enumerate(CLOCK)],
)
def test_a_clock_can_go_on_under_every_physical_key(key: str, low: float | None, high: float) -> None:
    """At its ends a key is taken; beyond them it is refused with the end's value."""
    far = {
        f"{key}={value!r}": end
        for value, end in ((10 * high, high), (1e300, high), *(((low / 10, low),) if low else ()))
    }
    for override, end in far.items():
        assert f"{end}" in problems(override)[key].allowed
    assert plan(f"{key}={high!r}").config is not None and plan(f"{key}={(low or 0.0)!r}").config is not None


def test_a_network_of_ones_own_needs_no_name(mine: Path) -> None:
    (mine / "network").mkdir(exist_ok=True)
    (mine / "network" / "near.yaml").write_text("client_server: {latency_ms: 3.0}\n")
    run = plan("network=near", user_dir=mine).config
    assert run is not None and run.network.client_server.latency_ms == 3.0


def test_a_range_stands_with_numbers_and_with_what_may_be_null() -> None:
    for kind, value, told in (
        (Annotated[int, "rows"], "abc", "must be an integer"),
        (Annotated[int, Range(at_least=1)], 0, "must be at least 1"),
        (Annotated[int | None, Range(at_least=1)], 0, "must be at least 1"),
        (Annotated[list[int], "rows"], "abc", "must be a list: [a,b]"),
        (Annotated[int | None, Range(at_least=1)], None, None),
    ):  # fmt: skip
        _, found = config.convert(make_dataclass("Keys", [("rows", kind)]), {"rows": value})
        assert [problem.allowed for problem in found] == ([told] if told else []), (kind, value)


def test_numbers_that_no_float32_holds_are_refused_wherever_a_number_is_asked_for() -> None:
    found = problems(
        "algorithm.lr=1e300", "max_virtual_seconds=1e-300", "target=-1e40", "network.client_server.latency_ms=1e-300"
    )
    assert {problem.allowed.removesuffix(", or null") for problem in found.values()} == {
        "must be 0, or from 1e-30 to 1e+30 in size"
    }
    assert len(found) == 4
    assert plan("algorithm.lr=1e30", "max_virtual_seconds=1e-30", "target=0").config is not None


def test_cores_and_delays_have_ends_too() -> None:
    assert "at most 1,000,000" in problems("compute.cores=[1000001]")["compute.cores"].allowed
    delay = "{scale:1e7,exponent:0}"
    found = problems("+compute.delays={" + ",".join(f"{part}:{delay}" for part in delays.PARTS) + "}")
    assert len(found) == len(delays.PARTS) and all(
        "at most 1e+06 seconds a sample" in problem.allowed for problem in found.values()
    )


def test_a_preset_may_set_keys_that_none_has_no_use_for() -> None:
    """A sweep over privacy=none,dp_sgd has one value of epsilon. A key that no option has is refused all the same."""
    with config.session([], None) as hydra:
        values = config.plain(config.plan(hydra, ["algorithm=leasgd", "dataset=digits"]).cfg)
    values["privacy"] = {"name": "none", "epsilon": 4.65}
    assert config.to_config(values).privacy.name == "none"
    values["privacy"] = {"name": "none", "epsilom": 4.65}
    with pytest.raises(ConfigError, match=r"privacy.epsilom=4.65: unknown key"):
        config.to_config(values)


@pytest.mark.slow
def test_a_sweep_leaves_out_keys_that_one_of_its_methods_lacks() -> None:
    """Jobs that differ in nothing else are done once; the words say what was left out."""
    methods = ("algorithm=svfl,vfl_sgd", "dataset=breast_cancer")
    found = plan(*methods, "algorithm.local_steps=2,3", "seed=0,1", base=(), multirun=True)
    assert found.jobs == [
        *(
            ["algorithm=svfl", "dataset=breast_cancer", f"algorithm.local_steps={steps}", f"seed={seed}"]
            for steps in (2, 3)
            for seed in (0, 1)
        ),
        *(["algorithm=vfl_sgd", "dataset=breast_cancer", f"seed={seed}"] for seed in (0, 1)),
    ]
    assert found.left_out == ["algorithm.local_steps=2,3 is left out of algorithm=vfl_sgd, which has no such key"]
    found = plan(*methods, "model.hidden=7", "algorithm.halve_every=3", base=(), multirun=True)
    assert found.jobs is not None and len(found.jobs) == 2
    assert found.left_out[-1].startswith("algorithm.halve_every=3 is left out of algorithm=vfl_sgd")
    private = plan("algorithm=vfl_sgd", "dataset=breast_cancer", "privacy=none,dp_sgd", "privacy.epsilon=1,2", base=(),
                   multirun=True)  # fmt: skip
    assert private.jobs is not None and len(private.jobs) == 3 and "privacy.epsilon=1" not in private.jobs[0]


def test_a_key_that_no_swept_method_has_is_a_mistake_and_so_is_one_of_a_single_run() -> None:
    wrong = problems("algorithm=svfl,vfl_sgd", "algorithm.locl_steps=2", base=(), multirun=True)
    assert wrong["algorithm.locl_steps"].closest == "algorithm.local_steps"
    assert "algorithm.local_steps" in problems("algorithm=vfl_sgd", "algorithm.local_steps=2", base=())
    # One method and several seeds: nobody has it.
    assert "algorithm.local_steps" in problems(
        "algorithm=vfl_sgd", "algorithm.local_steps=2", "seed=0,1", base=(), multirun=True
    )
    # A value that the method that has the key refuses.
    assert problems("algorithm=svfl,vfl_sgd", "algorithm.local_steps=x", base=(), multirun=True)


def run_values(*overrides: str) -> dict[str, Any]:
    with config.session([*BASE, *overrides], None) as hydra:
        found = config.for_all_links(hydra, [*BASE, *overrides])
        return config.plain(config.plan(hydra, found).cfg)


def test_latency_and_bandwidth_of_all_links_are_keys() -> None:
    """Hash and label come from the values: the keys of one kind say the same."""
    short = run_values("network.latency_ms=50", "network.bandwidth_mbps=100")
    kinds = [f"network.{kind}.{text}" for kind in ("client_server", "client_client")
             for text in ("latency_ms=50", "bandwidth_gbps=0.1")]  # fmt: skip
    assert config_hash(short) == config_hash(run_values(*kinds))
    assert network_label(short["network"]) == "50 ms, 0.1 Gbit/s"
    us_us = run_values("network.latency_ms=67", "network.bandwidth_mbps=1150")
    assert config_hash(us_us) == config_hash(run_values("network=us_us"))
    assert run_values("network.bandwidth_mbps=null")["network"]["client_client"]["bandwidth_gbps"] is None
    with config.session([], None) as hydra:
        swept = config.for_all_links(hydra, [*BASE, "network.bandwidth_mbps=50,100"])
        plan = config.plan(hydra, swept, multirun=True)
        links = [values["network"] for _, values in config.configurations(hydra, plan.jobs or [])]
        assert [network_label(values) for values in links] == ["136 ms, 0.05 Gbit/s", "136 ms, 0.1 Gbit/s"]
        priced = config.profiles(hydra, config.for_all_links(hydra, ["network.latency_ms=50"]))
        assert priced == [({f"network.{kind}.latency_ms": 50 for kind in ("client_server", "client_client")}, None)]


def test_one_kind_of_links_typed_beside_a_preset_of_both_leaves_the_other(tmp_path: Path) -> None:
    (tmp_path / "experiment").mkdir()
    preset = "hydra: {mode: MULTIRUN, sweeper: {params: {network.latency_ms: 50, seed: '0,1'}}}\n"
    (tmp_path / "experiment" / "slow.yaml").write_text(f"# @package _global_\n{preset}")
    words = [*BASE, "experiment=slow", "network.client_server.latency_ms=20"]
    with config.session(words, tmp_path) as hydra:
        jobs = config.plan(hydra, words).jobs
        links = [values["network"] for _, values in config.configurations(hydra, jobs or [])]
    assert [(own["client_server"]["latency_ms"], own["client_client"]["latency_ms"]) for own in links] == [(20, 50)] * 2


def test_what_is_wrong_with_the_keys_of_all_links() -> None:
    words = ["network.latency_ms=50", "network.client_client.latency_ms=9", "network.bandwidth_mbps=0"]
    with config.session([], None) as hydra:
        assert config.for_all_links(hydra, words) == words
    found = problems(*words)
    assert found["network.latency_ms"].allowed.startswith(
        "is for both kinds of links, and network.client_client.latency_ms is given too"
    )
    assert found["network.bandwidth_mbps"].allowed.startswith("must be greater than 0")
    assert set(problems("network.latency_ms=fast", "seed=x")) == {"network.latency_ms", "seed"}


@pytest.mark.parametrize("algorithm", few_fast(["vfl privacy=label_rr", "svfl privacy=gaussian_embedding"]))
def test_epsilon_of_a_row_is_not_sold_for_that_of_an_image_of_many_rows(algorithm: str) -> None:
    words = [f"algorithm={algorithm.split()[0]}", algorithm.split()[1], "algorithm.parties=4", "dataset=cifar10"]
    plan(*words, "model=resnet", base=())
    found = problems(*words, "model=resnet", "dataset.augment=10", base=())["dataset.augment"]
    assert "every image would be 10 rows" in str(found)
