"""A sweeper that adapts: golden-section search for the lowest value between two ends of a logarithmic scale.

Like sweepers of packages, it is in the namespace `hydra_plugins`, and knows Hydra's documented interface alone.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.plugins import Plugins
from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf

GOLDEN = (math.sqrt(5) - 1) / 2


class GoldenSection(Sweeper):
    def __init__(self, jobs: int, sign: int) -> None:
        self.jobs, self.sign = jobs, sign
        self.tried: list[tuple[float, float]] = []

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        self.config = config
        self.launcher = Plugins.instance().instantiate_launcher(
            hydra_context=hydra_context, task_function=task_function, config=config
        )

    def sweep(self, arguments: list[str]) -> None:
        parsed = OverridesParser.create().parse_overrides(arguments)
        (searched,) = [override for override in parsed if override.is_sweep_override()]
        fixed = [str(override.input_line) for override in parsed if override is not searched]
        interval: Any = searched.value()
        low, high = math.log(interval.start), math.log(interval.end)
        OmegaConf.save(self.config, Path(self.config.hydra.sweep.dir) / "multirun.yaml")

        def tried(place: float) -> float:
            words = [*fixed, f"{searched.get_key_element()}={math.exp(place)!r}"]
            (done,) = self.launcher.launch([words], initial_job_idx=len(self.tried))
            value = done.return_value
            assert type(value) is float, value
            self.tried.append((math.exp(place), value))
            return self.sign * value

        a, b = high - GOLDEN * (high - low), low + GOLDEN * (high - low)
        at_a, at_b = tried(a), tried(b)
        while len(self.tried) < self.jobs:
            if at_a <= at_b:
                high, b, at_b = b, a, at_a
                a = high - GOLDEN * (high - low)
                at_a = tried(a)
            else:
                low, a, at_a = a, b, at_b
                b = low + GOLDEN * (high - low)
                at_b = tried(b)
        Path(self.config.hydra.sweep.dir, "tried.txt").write_text("\n".join(f"{x!r} {y!r}" for x, y in self.tried))
