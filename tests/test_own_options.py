"""What the docs show of options in a user's own package does what it says."""

from __future__ import annotations

import dataclasses
import itertools
import re
import sys
import tomllib
import zlib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml
from hydra.core.config_store import ConfigStore

import vflbench
from vflbench import cli, contract_checks, defaults, exposure, registry
from vflbench.choosing import candidates, question
from vflbench.results.reader import Run
from vflbench.runner.costs import network_config
from vflbench.types import ConfigError, LinkConfig, VflbenchError

PAGES = Path(__file__).resolve().parents[1] / "docs/how-to"
DOCS = "\n".join(
    (PAGES / f"{page}.md").read_text(encoding="utf-8") for page in ("own-options", "add-an-algorithm", "add-a-dataset")
)
FILES = {name: text for name, text in re.findall(r"```\w+\n# (\S+)\n(.*?)```", DOCS, re.DOTALL)}
COMMANDS = re.findall(r"^    vflbench (.*)$", DOCS, re.MULTILINE)
SMALL = [
    "dataset.source=synthetic",
    "dataset.samples=400",
    "rounds=2",
    "algorithm.batch_size=64",
    "model.depth=2",
    "plot=none",
]


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An installed package `my_package` with all that the page shows."""
    site = tmp_path / "site"
    points: dict[str, Any] = {}
    for block in re.findall(r"```toml\n(.*?)```", DOCS, re.DOTALL):
        points |= tomllib.loads(block)["project"]["entry-points"]
    lines = [
        line
        for group, named in points.items()
        for line in (f"[{group}]", *(f"{name} = {module}" for name, module in named.items()))
    ]
    texts = {"my_package/__init__.py": "", "my_package-1.0.dist-info/entry_points.txt": "\n".join(lines)}
    texts["my_package-1.0.dist-info/METADATA"] = "Metadata-Version: 2.1\nName: my-package\nVersion: 1.0\n"
    for name, text in {
        **texts,
        **{name: text for name, text in FILES.items() if name.startswith("my_package/")},
    }.items():
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).write_text(text)
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.setattr("vflbench.plots.curves.draw_run", lambda *args: None)
    caches = (
        registry.entry_points,
        registry.algorithm_entries,
        registry.dataset_entries,
        registry.option_entries,
        registry._checked,
    )
    for cached in caches:
        cached.cache_clear()
    yield site / "my_package"
    for cached in caches:
        cached.cache_clear()
    repo = ConfigStore.instance().repo
    # the process's, told of plugins
    stored = [group for group in (*repo.values(), *repo["hydra"].values()) if isinstance(group, dict)]
    for group, name in itertools.product(stored, (name for named in points.values() for name in named)):
        group.pop(f"{name}.yaml", None)
    for name in [name for name in sys.modules if name.startswith("my_package")]:
        del sys.modules[name]


def run(folder: Path, option: str, *more: str) -> Run:
    """The page's command that chooses `option`, on little data."""
    (command,) = [command for command in COMMANDS if option in command.split()]
    return vflbench.run([*command.split(), *SMALL, *more, f"hydra.run.dir={folder}"])


@pytest.mark.slow
@pytest.mark.usefixtures("package")
def test_an_attack(tmp_path: Path) -> None:
    ended = run(tmp_path / "run", "attack=count")
    batches = -(-ended.manifest["config"]["dataset"]["samples"] * 6 // 10 // 64)
    assert ended.summary["attack"]["name"] == "count" and ended.summary["attack"]["senders"] == {
        "passive_1": 2 * batches
    }
    with pytest.raises(
        ConfigError, match=r"attack\.tagg=x: unknown key; attack=count has: tag\. Did you mean 'attack\.tag'"
    ):
        run(tmp_path / "refused", "attack=count", "attack.tagg=x")
    with pytest.raises(ConfigError, match="attack=count: rfl_admm_v can have: none, prediction_recovery"):
        vflbench.run(["algorithm=rfl_admm_v", "dataset=star_schema", "attack=count"])


def test_an_attack_that_breaks_the_contract(package: Path, tmp_path: Path) -> None:
    (package / "count.py").write_text(
        FILES["my_package/count.py"].replace("def watch(task, config, hubs)", "def watch(task)")
    )
    with pytest.raises(
        Exception, match=r"count.py: watch takes \(task\), and is called as watch\(task, config, hubs\)"
    ):
        run(tmp_path / "run", "attack=count")


@pytest.mark.slow
@pytest.mark.usefixtures("package")
def test_a_codec(tmp_path: Path) -> None:
    ended = run(tmp_path / "run", "codec=sign")
    assert ended.summary["codec"] == "sign" and ended.manifest["config"]["codec"] == {
        "name": "sign",
        "feedback": False,
        "scale": 0.5,
    }
    width = ended.manifest["config"]["model"]["embedding"]
    sent = ended.ledger.query("tag == 'embedding' and link != 'local'")["bytes"]
    assert sent.max() == 3 * 8 + 64 * width + 4  # which batch it is, a byte a number, and one scale
    with pytest.raises(
        ConfigError, match=r"codec\.scal=1: unknown key; codec=sign has: feedback, scale\. Did you mean 'codec\.scale'"
    ):
        run(tmp_path / "refused", "codec=sign", "codec.scal=1")
    with pytest.raises(
        ConfigError, match=r"codec=sing: unknown codec; there are: fp16, int8, none, sign, topk\. Did you mean 'sign'"
    ):
        vflbench.run(["codec=sing"])


@pytest.mark.slow
@pytest.mark.usefixtures("package")
def test_a_protection(tmp_path: Path) -> None:
    words = next(command for command in COMMANDS if "protection=" in command).split()
    small = ["dataset.source=synthetic", "dataset.samples=400", "rounds=2", "plot=none"]
    ended, clear = (
        vflbench.run([*given, *small, f"hydra.run.dir={tmp_path / name}"])
        for name, given in (("padded", words), ("clear", words[:2]))
    )
    assert ended.manifest["config"]["protection"] == {"name": "padded", "size": 128}
    count = ended.ledger.query("tag == 'gradient'")["bytes"].iloc[0] // 128
    assert ended.summary["protection"]["active"]["encrypted"] == 2 * count
    assert not ended.summary["protection"]["performed"]
    assert (ended.summary["compute_clock"], clear.summary["compute_clock"]) == ("modelled", "none")
    assert ended.curve["train_loss"].equals(clear.curve["train_loss"])


@pytest.mark.slow
@pytest.mark.usefixtures("package")
def test_an_accounting(tmp_path: Path) -> None:
    ended = run(tmp_path / "run", "accounting=headed")
    charged = ended.ledger.query("link != 'local'")
    assert (
        ended.summary["bytes"]["total"] == charged["bytes"].sum() + 66 * len(charged)
        and ended.summary["accounting"] == "headed"
    )
    with pytest.raises(ConfigError, match="accounting=headed: glasu can have: strict"):
        vflbench.run(["accounting=headed"])
    with pytest.raises(
        ConfigError,
        match=r"accounting=heade: must be one of everything, framed, headed, strict, tablepuppet\. Did you mean 'hea",
    ):
        vflbench.run(["accounting=heade"])


@pytest.mark.slow
def test_a_privacy_mechanism(tmp_path: Path, package: Path) -> None:
    source = package / "rounded.py"
    source.write_text(source.read_text().replace('("pubsub_vfl",)', '("pubsub_vfl", "standalone_gnn")'))
    ended = run(tmp_path / "run", "privacy=rounded", "algorithm.workers=2", "algorithm.passive_workers=2")
    spent = ended.summary["privacy"]
    assert (
        spent["mechanism"] == "rounded"
        and spent["rows"] >= 2 * ended.manifest["config"]["dataset"]["samples"] * 6 // 10
    )
    assert ended.manifest["config"]["privacy"] == {"name": "rounded", "secure_rng": None, "step": 0.5}
    with pytest.raises(ConfigError, match="privacy=rounded: standalone_gnn can have: none"):  # it calls no mechanism
        vflbench.run(["algorithm=standalone_gnn", "dataset=digits_graph", "privacy=rounded"])
    with pytest.raises(ConfigError, match=r"privacy\.epsilon=1: privacy=rounded has no such key; .*gaussian_embedding"):
        run(tmp_path / "refused", "privacy=rounded", "privacy.epsilon=1")


@pytest.mark.slow
@pytest.mark.usefixtures("package")
def test_a_topology(tmp_path: Path) -> None:
    (command,) = [command for command in COMMANDS if "topology=wheel" in command]
    words = [
        *command.replace("dataset=mnist", "dataset=digits").split(),  # smaller
        "rounds=2",
        "algorithm.workers=5",
        "algorithm.batch_size=512",
    ]
    words += ["plot=none"]
    ended = vflbench.run([*words, f"hydra.run.dir={tmp_path / 'run'}"])
    met = {
        tuple(sorted(pair)) for pair in ended.ledger.query("link != 'local'")[["src", "dst"]].itertuples(index=False)
    }
    rim = [f"worker_{i}" for i in (0, 2, 3, 4)]
    ring = {tuple(sorted((a, b))) for a, b in zip(rim, rim[1:] + rim[:1], strict=True)}
    assert met == ring | {tuple(sorted(("worker_1", other))) for other in rim}
    with pytest.raises(
        ConfigError, match=r"topology\.hubb=1: unknown key; topology=wheel has: hub\. Did you mean 'topology\.hub'"
    ):
        vflbench.run([*words, "topology.hubb=1"])
    with pytest.raises(
        ConfigError, match=r"topology\.hub=5: a wheel takes 4 clients and a hub among them; there are 5"
    ):
        vflbench.run([*words, "topology.hub=5", f"hydra.run.dir={tmp_path / 'refused'}"])
    with pytest.raises(ConfigError, match="topology=wheel: mtcd can have: "):
        vflbench.run(["algorithm=mtcd", "dataset=digits", "topology=wheel"])


@pytest.mark.slow
@pytest.mark.usefixtures("package")
def test_a_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def latency(farthest: float) -> float:
        return zlib.crc32(b"active->passive_1") / 2**32 * farthest / 1000

    ended = run(tmp_path / "run", "network=scattered")
    sent = ended.ledger.query("link != 'local' and round == 1 and src == 'passive_1'").iloc[0]
    assert sent["delivered"] - sent["sent"] == pytest.approx(latency(200) + sent["bytes"] * 8e-9)
    assert ended.manifest["config"]["network"]["farthest_ms"] == 200
    assert (
        cli.command(
            [
                "reprice",
                str(tmp_path / "run"),
                "network=scattered",
                "network.farthest_ms=50",
                "--out",
                str(tmp_path / "r"),
            ]
        )
        == 0
    )
    (again,) = (tmp_path / "r").iterdir()
    nearer = Run(again).ledger.query("link != 'local' and round == 1 and src == 'passive_1'").iloc[0]
    assert nearer["delivered"] - nearer["sent"] == pytest.approx(latency(50) + sent["bytes"] * 8e-9)
    with pytest.raises(ConfigError, match=r"network\.farthest_ms=-5\.0: must be at least 0"):
        run(tmp_path / "refused", "network=scattered", "network.farthest_ms=-5")
    far = LinkConfig(latency_ms=-1.0)
    monkeypatch.setattr(registry.load_option("network", "scattered"), "link", lambda config, kind, pair: far)
    with pytest.raises(
        ConfigError, match=r"network=scattered: gives .*latency_ms=-1\.0.*; allowed are latency_ms from 0 to 1e9"
    ):
        run(tmp_path / "nearer", "network=scattered")
    with pytest.raises(VflbenchError, match="network=gone has no key farthest_ms: is its package installed"):
        network_config({"name": "gone", "farthest_ms": 3.0})
    with pytest.raises(ConfigError, match=r"network\.fathest_ms=1: unknown key; .*Did you mean 'network\.farthest_ms'"):
        run(tmp_path / "refused", "network=scattered", "network.fathest_ms=1")


@pytest.mark.slow
@pytest.mark.usefixtures("package")
def test_a_launcher(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (command,) = [command for command in COMMANDS if "hydra/launcher=processes" in command]
    assert cli.command([*command.split(), *SMALL, f"hydra.sweep.dir={tmp_path / 's'}"]) == 0
    assert [Run(tmp_path / "s" / str(i)).summary["status"] for i in range(2)] == ["completed"] * 2
    refused = [word for word in command.split() if "jobs=" not in word]
    assert cli.command([*refused, *SMALL, "hydra.launcher.jobs=0", f"hydra.sweep.dir={tmp_path / 'none'}"]) == 1
    assert "hydra.launcher.jobs=0: must be at least 1" in capsys.readouterr().err and not (tmp_path / "none").exists()
    assert cli.command([*refused, *SMALL, "hydra.launcher.jobs=${nope}", f"hydra.sweep.dir={tmp_path / 'none'}"]) == 1
    assert "hydra.launcher.jobs=${nope}: Interpolation key 'nope' not found" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.usefixtures("package")
def test_a_logger(tmp_path: Path) -> None:
    ended = run(tmp_path / "run", "logger=lines")
    *rows, last = (tmp_path / "run/logs/mine.txt").read_text().splitlines()
    assert [row.split()[0] for row in rows] == ["round=1", "round=2"] and last == "completed"
    assert f"bytes={ended.summary['bytes']['total']:g}" in rows[-1].split() and "val_auroc=" in rows[-1]
    with pytest.raises(ConfigError, match=r"logger\.fil=1: unknown key; logger=lines has: file\. Did you mean"):
        run(tmp_path / "refused", "logger=lines", "logger.fil=1")


@pytest.mark.slow
@pytest.mark.usefixtures("package")
def test_a_list_of_what_runs_on_a_data_set_has_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.command(["list", "dataset=digits", "dataset.samples=200"]) == 0
    assert any(line.startswith("averaged ") for line in capsys.readouterr().out.splitlines())


@pytest.mark.usefixtures("package")
def test_an_algorithm(tmp_path: Path) -> None:
    (command,) = [command for command in COMMANDS if "algorithm=averaged" in command]
    ended = vflbench.run([*command.split(), "rounds=2", "algorithm.workers=3", f"hydra.run.dir={tmp_path / 'run'}"])
    assert ended.summary["status"] == "completed" and ended.summary["metric"]["selected"] > 0.6
    sizes = ended.ledger.groupby("tag")["bytes"].agg(["count", "nunique"])
    # a model each way for each worker and round
    assert sizes.loc["model"].tolist() == sizes.loc["average"].tolist() == [2 * 3, 1]
    assert ended.manifest["config"]["algorithm"]["share"] == 0.5
    with pytest.raises(ConfigError, match=r"algorithm\.shar=1: unknown key.*Did you mean 'algorithm\.share'"):
        vflbench.run(["algorithm=averaged", "dataset=digits", "algorithm.shar=1"])


def test_plug_ins_may_import_the_earlier_names() -> None:
    from vflbench.algorithms.gossip import exposes, shared, worker_sgd
    from vflbench.cards.algorithms.gossip import model_messages

    assert exposes.of_models is model_messages.of_models
    for name in ("LocalSgd", "WorkerKeys", "initial_model", "train_alone", "workers", "check_data"):
        assert getattr(shared, name) is getattr(worker_sgd, name)


@pytest.mark.slow
@pytest.mark.parametrize("declared", ["implied", "nothing", None])
def test_an_algorithm_that_declares_nothing_is_unverified(
    declared: str | None, package: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, entry = (package / "averaged.py").read_text(), re.compile(r" +\*model_messages\.of_models.*\n")
    if declared != "implied":
        assert entry.search(source)
        source = entry.sub("", source)
    if declared == "nothing":
        source = source.replace('label="Averaged",', 'label="Averaged",\n    implies_nothing="models are sums",')
    (package / "averaged.py").write_text(source)
    assert exposure.unverified("averaged") == (declared is None)
    registry.load_algorithm("averaged")
    for told in (["list"], ["privacy", "algorithm=averaged"]):
        assert cli.command(told) == 0
        said = " ".join(capsys.readouterr().out.split())
        assert (exposure.UNVERIFIED in said.replace("Unverified", "unverified")) == (declared is None), told
    words = ["dataset=digits", "dataset.problem=learning", "target=0.8", "trials=1", "algorithm=averaged,fedavg"]
    _, excluded = candidates.enter(question.parse([*words, "demand=rows"], "choose"))
    assert [one.reason for one in excluded] == ([] if declared else [exposure.UNVERIFIED])
    methods, _ = candidates.enter(question.parse(words, "choose"))  # without a requirement it enters
    assert [method.algorithm for method in methods] == ["averaged", "fedavg"]


def test_an_algorithm_from_whose_messages_something_follows_and_nothing_is_refused(package: Path) -> None:
    source = (package / "averaged.py").read_text()
    source = source.replace('label="Averaged",', 'label="Averaged",\n    implies_nothing="models are sums",')
    (package / "averaged.py").write_text(source)
    with pytest.raises(VflbenchError, match="implies_nothing, and EXPOSES has Implied"):
        registry.load_algorithm("averaged")


def test_an_algorithm_in_this_repository(package: Path) -> None:
    """Its YAML on the page lists the keys of its Config, with their defaults."""
    page = (PAGES / "add-an-algorithm.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```yaml\n(# Local SGD.*?)```", page, re.DOTALL)
    listed = {key: value for key, value in yaml.safe_load(block).items() if key != "defaults"}
    assert listed == dataclasses.asdict(registry.option_config("algorithm", "averaged")())


def shown(path: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A module of this repository that a page shows."""
    option, read = Path(path).stem, defaults._read
    (text,) = re.findall(rf"```yaml\n([^`]*^name: {option}\n.*?)```", DOCS, re.DOTALL | re.MULTILINE)
    monkeypatch.setattr(
        defaults, "_read", lambda asked: yaml.safe_load(text) if asked.endswith(f"/{option}") else read(asked)
    )
    module = ModuleType(path.removesuffix(".py").replace("/", "."))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(compile(FILES[path], path, "exec"), vars(module))
    return module


@pytest.mark.usefixtures("package")
def test_card_and_programs_in_this_repository_are_the_module_of_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    place = "algorithms/gossip/averaged.py"
    card, programs = (shown(f"{room}/{place}", monkeypatch) for room in ("vflbench/cards", "vflbench"))
    contract_checks.check_algorithm(card, programs)
    plugin = registry.card("algorithm", "averaged")
    assert card.EXPOSES == plugin.EXPOSES and dataclasses.replace(plugin.ALGORITHM, place=11) == card.ALGORITHM
    assert dataclasses.asdict(card.Config()) == dataclasses.asdict(registry.option_config("algorithm", "averaged")())
    taken = [info.place for info in registry.algorithms().values() if info.family == "gossip"]
    assert card.ALGORITHM.place not in taken  # each has a place of its own
    place = "data/tabular/wine.py"
    card, programs = (shown(f"{room}/{place}", monkeypatch) for room in ("vflbench/cards", "vflbench"))
    contract_checks.check_dataset(card, programs)
    assert registry.datasets()["wine"] == card.DATASETS[0]
    assert dataclasses.asdict(card.Config()) == dataclasses.asdict(registry.option_config("dataset", "wine")())


@pytest.mark.slow
@pytest.mark.usefixtures("package")
def test_a_data_set(tmp_path: Path) -> None:
    (command,) = [command for command in COMMANDS if "dataset=wine" in command]
    ended = vflbench.run(
        [*command.split(), "epochs=3", "algorithm.batch_size=16", "model.depth=2", f"hydra.run.dir={tmp_path / 'run'}"]
    )
    assert (
        ended.summary["status"] == "completed"
        and ended.summary["dataset"] == "wine"
        and ended.summary["data_source"] == "real"
    )
    assert {"val_accuracy", "test_accuracy"} <= set(ended.curve.columns)
    workers = vflbench.run(
        ["algorithm=local_sgd", "dataset=wine", "rounds=1", "algorithm.workers=2", f"hydra.run.dir={tmp_path / 'rows'}"]
    )
    assert workers.summary["status"] == "completed"


@pytest.mark.slow
@pytest.mark.usefixtures("package")
def test_a_method_of_ones_own_enters_a_choice() -> None:
    words = ["dataset=digits", "dataset.problem=learning", "target=0.8", "trials=1", "algorithm=averaged,fedavg"]
    methods, _ = candidates.enter(question.parse(words, "choose"))
    assert [method.algorithm for method in methods] == ["averaged", "fedavg"]
