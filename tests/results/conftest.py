import pytest

from vflbench.results import folder, identity, inventory, reader
from vflbench.results.experiment import SEMANTICS
from vflbench.types import DataSource, Metric


@pytest.fixture
def make_run(tmp_path):
    """Writes a small run folder below tmp_path."""

    def make(
        name,
        algorithm="glasu",
        seed=0,
        status="completed",
        overrides=None,
        validation=True,
        options=None,
        scale=1.0,
        **root,
    ):
        path = tmp_path / name
        folder.prepare(path)
        curve = [
            {
                "round": t,
                "bytes": t * 1000,
                "communication_seconds": 0.5 * t,
                "val_accuracy": scale * t / 100 if validation else None,
                "test_accuracy": t / 90,
            }
            for t in (10, 20, 30)
        ]
        folder.write_curve(path / "curve.csv", curve, "accuracy")
        config = {
            "algorithm": {"name": algorithm, **(options or {})},
            "dataset": {"name": "cora"},
            "network": {"name": "us_uk"},
            "privacy": {"name": "none"},
        }
        config |= {"seed": seed, **root}
        folder.write_json(
            path / "manifest.json",
            {"schema": 1, "config": config, "config_hash": identity.config_hash(config), "semantics": SEMANTICS},
        )
        summary = folder.summarise(
            **{"status": status, "algorithm": algorithm, "dataset": "cora", "source": DataSource("real"), "seed": seed},
            **{"metric": Metric("accuracy", "max"), "rows": curve, "rounds": 30, "bytes_by_tag": {"embedding": 30000}},
            **{
                "bytes_by_link": {"client_server": 30000},
                "messages": 9,
                "vectors": 9,
                "cost": 1.0,
                "communication_seconds": 15.0,
            },
            **{
                "compute_seconds": 0.0,
                "virtual_seconds": 15.0,
                "wall_seconds": 1.0,
                "compute_clock": "none",
                "timing": "causal",
            },
            **{"accounting": "strict", "device": "cpu", "reason": None if status == "completed" else "because"},
        )
        folder.write_json(path / "summary.json", summary)
        if overrides:
            (path / ".hydra").mkdir()
            folder.atomic_write(path / ".hydra" / "overrides.yaml", "".join(f"- {word}\n" for word in overrides))
        (path / inventory.NAME).unlink()  # as older runs are, whose damages are found by what they break
        return reader.load(path)

    return make
