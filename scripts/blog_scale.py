"""What the scale of Blog's columns and of its target does to a network's error: `python scripts/blog_scale.py`.

One party has all columns, so no division of them matters. Columns are standardised and cut at ten, as a run has them,
or first sign(x) log(1 + |x|). The network learns the number of comments y, or log(1 + y); its error is that of y in
both cases. It has two hidden layers (64, 32), Adam, batches of 256 and 20 epochs; validation rows choose one of two
steps and the epoch. Boosted trees, which no scale of a column changes, learn the same targets. Rows are split as in a
run with the same seed. docs/results/pubsub_vfl/blog_scale.csv gets a row for each learner, with test RMSE.
"""

from __future__ import annotations

import csv
import itertools
import statistics
import sys
from pathlib import Path

import numpy as np
import torch
from sklearn.ensemble import HistGradientBoostingRegressor

from vflbench.cards.data.tabular import blog as blog_card

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from vflbench.data import sources
from vflbench.data.divide.splits import split_rows
from vflbench.data.tabular import blog

ROOT = Path(__file__).resolve().parent.parent
SEEDS, STEPS, EPOCHS, BATCH = (0, 1, 2), (0.001, 0.003), 20, 256
TARGETS = {"comments": (lambda y: y, lambda z: z), "log(1 + comments)": (np.log1p, np.expm1)}


def columns(values: np.ndarray, logarithms: bool, train: np.ndarray) -> np.ndarray:
    """All rows' columns, (n, d) float32, standardised by the training rows and cut at ten."""
    found = np.sign(values) * np.log1p(np.abs(values)) if logarithms else values
    spread = found[train].std(axis=0)
    found = (found - found[train].mean(axis=0)) / np.where(spread == 0, 1, spread)
    return found.clip(-10, 10).astype(np.float32)


def error(predicted: np.ndarray, y: np.ndarray) -> float:
    return float(np.sqrt(np.mean((predicted - y) ** 2)))


def network(x: np.ndarray, y: np.ndarray, rows: dict[str, np.ndarray], target: str, seed: int) -> float:
    """Test RMSE of the step and the epoch that validation prefers."""
    there, back = TARGETS[target]
    goal = there(y)
    mean, spread = goal[rows["train"]].mean(), goal[rows["train"]].std()
    inputs, goals = torch.from_numpy(x), torch.from_numpy(((goal - mean) / spread).astype(np.float32))
    best = (np.inf, np.inf)
    for step in STEPS:
        torch.manual_seed(seed)
        sizes = (x.shape[1], 64, 32, 1)
        layers = [layer for pair in itertools.pairwise(sizes) for layer in (torch.nn.Linear(*pair), torch.nn.ReLU())]
        model = torch.nn.Sequential(*layers[:-1])
        optimizer = torch.optim.Adam(model.parameters(), step)
        for _ in range(EPOCHS):
            for batch in torch.from_numpy(rows["train"])[torch.randperm(len(rows["train"]))].split(BATCH):
                optimizer.zero_grad()
                ((model(inputs[batch])[:, 0] - goals[batch]) ** 2).mean().backward()
                optimizer.step()
            with torch.no_grad():
                predicted = back(model(inputs)[:, 0].numpy().astype(np.float64) * spread + mean)
            best = min(
                best, (error(predicted[rows["val"]], y[rows["val"]]), error(predicted[rows["test"]], y[rows["test"]]))
            )
    return best[1]


def main() -> None:
    table, source = blog.FILES.make(blog_card.Config(), sources.data_root(None))
    if source.kind != "real":
        raise SystemExit("BlogFeedback is not here: set VFLBENCH_DATA")
    y = table.labels
    found: dict[tuple[str, str, str], list[float]] = {}
    for seed in SEEDS:
        rows = split_rows(len(y), 0.1, 0.3, seed)
        for target, (there, back) in TARGETS.items():
            for inputs in ("as they are", "logarithms"):
                x = columns(table.values, inputs == "logarithms", rows["train"])
                found.setdefault(("network", inputs, target), []).append(network(x, y, rows, target, seed))
            trees = HistGradientBoostingRegressor(random_state=seed).fit(
                table.values[rows["train"]], there(y[rows["train"]])
            )
            rmse = error(back(trees.predict(table.values[rows["test"]])), y[rows["test"]])
            found.setdefault(("trees", "as they are", target), []).append(rmse)
    with (ROOT / "docs/results/pubsub_vfl/blog_scale.csv").open("w", encoding="utf-8", newline="") as out:
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(("learner", "columns", "target", "seeds", "selected", "selected_sd"))
        for key, values in found.items():
            writer.writerow((*key, len(values), *(f"{f(values):.6g}" for f in (statistics.fmean, statistics.stdev))))


if __name__ == "__main__":
    main()
