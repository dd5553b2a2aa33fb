"""What is done with runs that are there: `reprice` and `report`."""

import os
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.common import say, star


def large_run(folder: Path, messages: int, clients: int = 20, per_round: int = 500) -> None:
    """The folder of a finished run of so many messages between a server and clients that also compute; nothing is
    trained."""
    import dataclasses

    from vflbench import config
    from vflbench.federation.accounting import Payload
    from vflbench.federation.clock import ComputeClock
    from vflbench.federation.ledger import sort_ledger
    from vflbench.federation.links import LINK_KINDS
    from vflbench.federation.simulated import SimulatedEngine
    from vflbench.results import folder as files
    from vflbench.results import parquet, run_schema
    from vflbench.results.identity import config_hash
    from vflbench.runner.costs import Costs, PartyInfo
    from vflbench.types import ComputeConfig, DataSource, LinkConfig, Metric, NetworkConfig

    with config.session() as hydra:
        values = config.plain(config.plan(hydra, ["dataset=digits_graph"]).cfg)
    rounds = messages // (2 * clients * per_round)
    specs = star(clients, per_round, computes=True)
    network = NetworkConfig("us_uk", LinkConfig(136.0, 0.42), LinkConfig(136.0, 0.42))
    ends: list[float] = []

    def on_round(round: int, engine: SimulatedEngine) -> bool:
        ends.append(engine.boundary_clock)
        return False

    made = SimulatedEngine(
        specs, network=network, rounds=rounds, clock=ComputeClock("modelled", ComputeConfig()), on_round=on_round
    )
    made.run()
    ledger, traces, tags = sort_ledger(made.ledger.take()), made.take_trace(), list(made.tags)
    parties = {name: PartyInfo(spec.role) for name, spec in specs.items()}
    costs = Costs(ledger, traces, parties, network, "strict", Payload(tags, 4, 1))
    scores = [
        {"round": r, "virtual_seconds": ends[r - 1], "val_accuracy": 0.5, "test_accuracy": 0.5}
        for r in range(1, rounds + 1)
    ]
    curve = costs.curve(scores)
    files.prepare(folder)
    parquet.ledger_parquet(folder / "ledger.parquet", ledger.T, list(specs), tags, LINK_KINDS)
    parquet.trace_parquet(folder / "trace.parquet", traces)
    files.write_curve(folder / "curve.csv", curve, "accuracy")
    manifest = {"schema": run_schema.SCHEMA, "config": values, "config_hash": config_hash(values)}
    manifest |= {
        "rounds": rounds,
        "cores": 0,
        "parties": {name: dataclasses.asdict(party) for name, party in parties.items()},
    }
    files.write_manifest(folder, manifest)
    summary = files.summarise(
        status="completed", algorithm="glasu", dataset="digits_graph", source=DataSource("synthetic"),
        metric=Metric("accuracy", "max"), seed=0, rows=curve, rounds=rounds, wall_seconds=0.0,
        compute_clock="modelled", timing="causal", accounting="strict", device="cpu",
        **costs.summary(rounds, ends[-1]),
    )  # fmt: skip
    files.write_summary(folder, summary)


def reprice() -> None:
    import tempfile

    from vflbench.runner.reprice import Profile
    from vflbench.runner.reprice import reprice as repriced

    with tempfile.TemporaryDirectory() as name:
        large_run(Path(name) / "large", 1_000_000)
        command = [str(Path(sys.executable).parent / "vflbench"), "reprice", "large", "network=us_us", "overwrite=true"]
        whole, own = [], []
        profile = Profile(
            {"network": "us_us"},
            {"name": "us_us", **{k: {"latency_ms": 67.0} for k in ("client_server", "client_client")}},
        )
        for _ in range(3):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run(command, stdout=subprocess.DEVNULL, check=True, cwd=name)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            whole.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
            began = time.process_time()
            refusals: list[str] = []
            repriced(
                [f"{name}/large"], [profile], Path(name) / "out", command="", overwrite=True, refused=refusals.append
            )
            own.append(time.process_time() - began)
            assert not refusals, refusals
        say(
            "reprice: CPU s, 1,000,000 messages, reading and writing included (under 5)",
            f"{statistics.median(own):.2f}",
            statistics.median(own) < 5,
        )
        say("  the whole command, with start and pictures", f"{statistics.median(whole):.2f}")


def copies(runs: list[Path], count: int, into: Path) -> None:
    """`count` run folders, those of `runs` in turn, each with a seed of its own, without the files that a report does
    not read."""
    import json
    import shutil

    for number in range(count):
        source, folder = runs[number % len(runs)], into / str(number)
        folder.mkdir(parents=True)
        for name in ("curve.csv", "ledger.parquet", "trace.parquet"):
            shutil.copy(source / name, folder / name)
        manifest, summary = (json.loads((source / name).read_text()) for name in ("manifest.json", "summary.json"))
        manifest["config"]["seed"] = summary["seed"] = number
        for name, values in (("manifest.json", manifest), ("summary.json", summary)):
            (folder / name).write_text(json.dumps(values))


def report() -> None:
    import tempfile

    import vflbench
    from vflbench.results import reader

    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary)
        small = [
            "dataset=ridge",
            "dataset.samples=200",
            "dataset.features=100",
            "topology=path",
            "rounds=50",
            "eval_every=1",
        ]
        kinds = {"svfl": 5, "stcd": 5, "mtcd": 5}
        for name, parties in kinds.items():
            vflbench.run(
                [
                    f"algorithm={name}",
                    *small,
                    f"algorithm.parties={parties}",
                    f"hydra.run.dir={root / 'trained' / name}",
                ]
            )
        trained = [root / "trained" / name for name in kinds]
        for count in (200, 50):
            copies(trained, count, root / str(count))
            page = root / f"{count}.html"
            code = "from vflbench.cli import main; main()"
            before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
            command = [sys.executable, "-c", code, "report", str(root / str(count)), "--out", str(page)]
            environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parent.parent)}
            subprocess.run(command, stdout=subprocess.DEVNULL, check=True, env=environment)
            seconds, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
            used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            size = page.stat().st_size / 1e6
            large = count == 200  # of these the time has a target, of the others the size
            say(
                f"report: s, {count} runs of 50 evaluations{' (under 10)' if large else ''}",
                f"{seconds:.1f}   ({used:.1f} s of CPU)",
                seconds < 10 if large else None,
            )
            say(
                f"  MB of the page of {count}{'' if large else ' (under 3)'}",
                f"{size:.2f}",
                None if large else size < 3,
            )
        messages = statistics.mean(len(reader.load(folder).ledger) for folder in trained)
        say("  messages a run, on average", f"{messages:,.0f}")
