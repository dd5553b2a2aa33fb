"""Fixtures that every room shares: the real data, a plugin package with a toy algorithm, one torch thread."""

from __future__ import annotations

import atexit
import ctypes
import gc
import importlib.util
import math
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

REPOSITORY = Path(__file__).resolve().parents[1]
DATA = Path(os.environ.get("VFLBENCH_DATA", REPOSITORY.parent / "shared" / "data")).absolute()

# A user's own package, found through its entry points; it needs no torch, so that tests of the command stay fast.
TOY_ALGORITHM = """
from dataclasses import dataclass
from typing import Literal

from vflbench.types import AlgorithmInfo, Problem

ALGORITHM = AlgorithmInfo(
    name="toy",
    summary="A toy.",
    paper="none",
    layouts=("graph",),
    divided_by="parties",
    reports=("predictions",),
    topologies=("star", "ring"),
)
EXPOSES = ()


@dataclass
class Config:
    name: str = "toy"
    parties: int = 3
    local_steps: int = 1
    layers: int = 4
    aggregations: int = 2
    lr: float = 0.1
    combine: Literal["avg", "cat"] = "avg"
    fanout: list[int] | None = None
    default_rounds: int = 10


def parties(task, config):
    raise NotImplementedError


def check(config):
    algorithm = config.algorithm
    if algorithm.aggregations > algorithm.layers:
        allowed = f"must be at most algorithm.layers={algorithm.layers}"
        return [Problem("algorithm.aggregations", algorithm.aggregations, allowed)]
    return []
"""
TOY_DATA = """
from dataclasses import dataclass

from vflbench.types import DatasetInfo

DATASETS = (
    DatasetInfo(name="toy_graph", summary="Three nodes.", layouts=("graph",)),
    DatasetInfo(name="toy_rows", summary="Three rows.", layouts=("aligned",)),
)


@dataclass
class Config:
    name: str = "toy_graph"
    source: str = "auto"
    variant: str = "auto"


def load(config, layout, parties, seed, root):
    raise NotImplementedError
"""


def pytest_configure() -> None:
    # Two test workers share two cores; set before anything imports torch, and for subprocesses.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    # Composing configurations makes many small objects: looking for garbage took a seventh of all time.
    gc.set_threshold(50_000, 20, 20)
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)
    # Hydra sets logging up anew for a sweep; absl, which comes with dp-accounting, then closes the standard error that
    # it found: pytest's.
    if importlib.util.find_spec("absl") is not None:
        from absl import logging

        logging.get_absl_handler().python_handler.stream = sys.__stderr__


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    # A long test that comes last would leave the other worker without work. Those that share a Ray cluster come where
    # the second worker begins: they are then in one worker, which makes one cluster and one set of processes for them.
    items.sort(key=lambda item: item.get_closest_marker("minutes") is None)
    shared = [item for item in items if "ray_cluster" in getattr(item, "fixturenames", ())]
    if shared:
        others = [item for item in items if item not in set(shared)]
        begins = len(items) // getattr(config, "workerinput", {}).get("workercount", 2)
        items[:] = [*others[:begins], *shared, *others[begins:]]


def pytest_collection_finish() -> None:
    # Half a million objects of modules and tests, which live to the end: no collection looks at them again.
    gc.freeze()
    atexit.register(gc.unfreeze)  # DuckDB's bindings tell what is not collected at the end


_full = 2**31  # bytes of memory at which garbage is looked for


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown() -> None:
    # As it is looked for rarely, each worker held 10 GB of it after the slow tests, also for the C library.
    global _full
    if _resident() > _full:
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)
        _full = max(2**31, _resident() + 2**30)


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def network_option(name: str, **changes: Any) -> dict[str, Any]:
    """The values of a network that comes with vflbench, with `changes`."""
    from vflbench import registry

    found = yaml.safe_load((registry.config_dir() / "network" / f"{name}.yaml").read_text())
    return {**found, **changes}


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real data sets; tests that need it are skipped where there is none."""
    if not DATA.is_dir():
        pytest.skip("no real data: set VFLBENCH_DATA")
    return DATA


def absent(reason: str) -> None:
    """A data set that this test needs is not below `shared_data`: skipped for a user, a failure in CI, which has it."""
    (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(reason)


@pytest.fixture(autouse=True)
def no_data_by_accident(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A test sees real data only where it is marked so: neither the environment's nor the user's cache."""
    if request.node.get_closest_marker("realdata"):
        return
    monkeypatch.delenv("VFLBENCH_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "no-cache"))


@pytest.fixture(autouse=True, scope="session")
def state_of_its_own(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Keys of parties' noise are not laid among the user's; set before any process is started."""
    os.environ["XDG_STATE_HOME"] = os.environ["VFLBENCH_TEST_STATE"] = str(tmp_path_factory.getbasetemp() / "state")


@pytest.fixture(autouse=True, scope="session")
def nothing_waits_for_the_disk() -> Iterator[None]:
    """A test outlives no power cut, and a small run would wait for the disk forty times."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        yield


@pytest.fixture(autouse=True, scope="session")
def no_run_looks_for_garbage() -> Iterator[None]:
    """Runs of users do; here that took a twelfth of all time, and the end of a test looks for it where it must."""
    from vflbench.cli import job

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(job, "_due", math.inf)
        yield


@pytest.fixture(autouse=True, scope="session")
def nothing_is_learnt_beside_runs() -> Iterator[None]:
    """Runs of tests are not followed by trees for floor and ceiling; tests of these put them back."""
    from vflbench.runner import task_baselines

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(task_baselines, "levels", lambda *_, **__: {})
        yield


@pytest.fixture(autouse=True, scope="session")
def composed_once() -> Iterator[None]:
    """Options are composed once for all tests of a worker, not for every run: that took half of a small run's time.

    Those of other packages than the toy and of a user's folder are not shared, for tests change them.
    """
    from vflbench import registry
    from vflbench.config.loader import Loader
    from vflbench.config.typed import OPEN

    compose, known = Loader._compose_options, {}

    def once(self: Loader, *how: Any) -> bytes:
        places = tuple((place.provider, place.path) for place in self.get_search_path().get_path())
        plugins = {entry.module for group in OPEN for entry in registry.entries(group).values() if entry.plugin}
        if plugins - {"toy_vfl.algorithm", "toy_vfl.data"} or any(place == "command-line" for place, _ in places):
            return compose(self, *how)
        key = (places, frozenset(plugins), how)
        if key not in known:
            known[key] = compose(self, *how)
        return known[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Loader, "_compose_options", once)
        yield


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[Any]:
    """Ray for the runs of a worker's tests, which find it with engine.address=auto; commands start their own."""
    if importlib.util.find_spec("ray") is None:
        absent("Ray is not installed: pip install 'vflbench[ray]'")
    from vflbench.federation.ray.cluster import Cluster

    with Cluster() as cluster:
        yield cluster


@pytest.fixture(scope="session")
def ray_processes(ray_cluster: Any) -> tuple[Any, Any]:
    """What hires and dismisses processes that go from run to run: to start one, with torch in it, costs seconds."""
    import ray

    from tests.federation.ray_toys import Again
    from vflbench.federation.ray.cluster import Cluster
    from vflbench.federation.ray.process import PartyProcess

    idle: dict[type, list[Any]] = {}
    kinds: list[tuple[Any, type]] = []
    hire, dismiss = Cluster.hire, Cluster.dismiss

    def answers(actor: Any) -> bool:
        """Not killed or stopped by the test."""
        ready, _ = ray.wait([reference := actor.__ray_ready__.remote()], timeout=5.0)
        try:
            return bool(ready and ray.get(reference))
        except ray.exceptions.RayActorError:
            return False

    def borrow(self: Any, kind: type) -> Any:
        kind = Again if kind is PartyProcess else kind
        actor = idle[kind].pop() if idle.get(kind) else hire(ray_cluster, kind)
        self.actors.append(actor)
        kinds.append((actor, kind))
        return actor

    def put_back(self: Any, actors: Any) -> None:
        for actor in list(actors):
            if answers(actor):
                self.actors.remove(actor)
                idle.setdefault(next(kind for known, kind in kinds if known is actor), []).append(actor)
            else:
                dismiss(self, [actor])

    return borrow, put_back


@pytest.fixture
def ray_pool(ray_processes: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """The runs of a test have the processes of the tests before it.

    A second monkeypatch beside the test's own would be undone in the wrong order: what both patch would stay patched.
    """
    from vflbench.federation.ray.cluster import Cluster

    borrow, put_back = ray_processes
    monkeypatch.setattr(Cluster, "hire", borrow)
    monkeypatch.setattr(Cluster, "dismiss", put_back)


@pytest.fixture(scope="session")
def toy_package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for sys.path in which a package `toy_vfl` with entry points is installed."""
    site = tmp_path_factory.mktemp("site")
    package, metadata = site / "toy_vfl", site / "toy_vfl-1.0.dist-info"
    package.mkdir()
    metadata.mkdir()
    (package / "__init__.py").touch()
    (package / "algorithm.py").write_text(TOY_ALGORITHM)
    (package / "data.py").write_text(TOY_DATA)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: toy-vfl\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(
        "[vflbench.algorithms]\ntoy = toy_vfl.algorithm\n[vflbench.datasets]\ntoy = toy_vfl.data\n"
    )
    return site


@pytest.fixture
def toy(toy_package: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The registry with the toy plugin in it."""
    from vflbench import registry

    caches = (registry.entry_points, registry.algorithm_entries, registry.dataset_entries)
    monkeypatch.syspath_prepend(str(toy_package))
    for cached in caches:
        cached.cache_clear()
    yield
    for cached in caches:
        cached.cache_clear()


@pytest.fixture
def make_run(tmp_path: Path) -> Any:
    """Writes a run whose test metric at round t is `level(t)`, at `pace` seconds and 1 MB a round."""
    from vflbench.results import experiment, folder, identity, inventory, reader
    from vflbench.types import DataSource, Metric

    def make(
        name,
        *,
        algorithm="glasu",
        seed=0,
        level=lambda t: t / 50,
        pace=2.0,
        sent=1_000_000,
        rounds=(10, 20, 30),
        **changes,
    ):
        path = tmp_path / name
        shutil.rmtree(path, ignore_errors=True)
        folder.prepare(path)
        metric = changes.pop("metric", Metric("accuracy", "max"))
        config = {
            "algorithm": {"name": algorithm, **changes.pop("options", {})},
            "dataset": {"name": "cora"},
            "seed": seed,
        }
        config["network"] = changes.pop("network", {"name": "us_uk"})
        keys = [f"{split}_{metric.name}" for split in folder.splits(metric.name)]
        sums = [{"round": t, "bytes": sent * t, "cost": sent * t, "communication_seconds": pace * t} for t in rounds]
        curve = [{**row, **dict.fromkeys(keys, level(row["round"]))} for row in sums]
        total = sent * rounds[-1] if rounds else 0
        summary = folder.summarise(
            **{
                "status": "completed",
                "algorithm": algorithm,
                "dataset": "cora",
                "source": DataSource("real"),
                "seed": seed,
                "metric": metric,
            }
            | {
                "rows": curve,
                "rounds": len(rounds),
                "bytes_by_tag": {"x": total},
                "bytes_by_link": {"client_server": total},
                "messages": 1,
            }
            | {
                "vectors": 1,
                "cost": 1.0,
                "communication_seconds": 1.0,
                "compute_seconds": 0.0,
                "virtual_seconds": 1.0,
                "wall_seconds": 1.0,
            }
            | {"compute_clock": "none", "timing": "causal", "accounting": "strict", "device": "cpu"}
            | changes
        )
        folder.write_curve(path / "curve.csv", curve, metric.name)
        known = {"config_hash": identity.config_hash(config), "semantics": experiment.SEMANTICS}
        folder.write_json(path / "manifest.json", {"config": config, **known})
        folder.write_json(path / "summary.json", summary)
        (path / inventory.NAME).unlink()  # as older runs are, whose damages are found by what they break
        return reader.load(path)

    return make


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Headless Chromium; where it is not installed the tests are skipped, and fail in CI."""
    if importlib.util.find_spec("selenium") is None:
        absent("selenium is not installed: pip install 'vflbench[dev]'")
    program, driver = (
        next(filter(None, map(shutil.which, names)), None)
        for names in (("chromium", "google-chrome"), ("chromedriver",))
    )
    if not program or not driver:
        absent("no chromium with its chromedriver: apt-get install chromium chromium-driver")
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = program
    for flag in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--window-size=1280,1000"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    found = webdriver.Chrome(options=options, service=Service(driver))
    yield found
    found.quit()
