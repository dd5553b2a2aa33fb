"""CIFAR-10 divided between parties, which each see a quarter of every image; or whole images dealt to workers.

Quadrants are as in EF-VFL's public code, whose author is MTCD's, too. Their order is top left, top right, bottom left,
bottom right. With `topology=clusters` the upper half and the lower half are the two clusters. Two parties have the
upper and the lower half; one party has whole images.

A part's features are uint8, 0 to 255, and models/image.py divides them by 255. Workers' images are standardised.

Random crops and flips move pixels from one party to another, so a party with one quadrant cannot make them. They are
made before images are divided: `augment` copies of every training image, each a row of its own.
"""

from pathlib import Path

import numpy as np

from vflbench.cards.data.images.cifar10 import Config
from vflbench.data import shipping
from vflbench.data.divide import partition
from vflbench.data.images import cifar
from vflbench.data.tasks import AlignedTask, Shard, ShardedTask
from vflbench.seeding import stream
from vflbench.types import Metric, Problem, refuse

FILE_SETS = (cifar.file_set("auto"),)

PADDING = 4  # pixels around an image that a random crop may reach
# Usual values for the training images' red, green and blue from 0 to 1: public, of no worker.
MEAN, DEVIATION = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)


def check(config: Config, layout: str, parties: int) -> list[Problem]:
    """What is wrong with the configuration, before anything is read."""
    problems = []
    if config.source == "synthetic" and config.variant in ("jpeg10k", "sample1000"):
        allowed = "the synthetic twin is that of all of CIFAR-10: auto or full"
        problems.append(Problem("dataset.variant", config.variant, allowed))
    if layout != "sharded" and parties not in (1, 2, 4):
        problems.append(Problem("algorithm.parties", parties, "must be 4 (quadrants), 2 (halves) or 1"))
    if layout == "sharded" and config.augment:
        problems.append(Problem("dataset.augment", config.augment, "is for images that are divided by quadrants: 0"))
    return problems


def load(config: Config, layout: str, parties: int, seed: int, root: Path | None) -> AlignedTask | ShardedTask:
    """CIFAR-10, with the official test images.

    Aligned: quadrants (n, 3, 16, 16) uint8 at four parties, halves (n, 3, 16, 32) at two, whole images at one. Sharded:
    whole images (n, 3, 32, 32) float32, dealt to `parties` workers.
    """
    refuse(check(config, layout, parties))
    images = cifar.read(config.variant, config.source, config.verify, root)
    split = partition.fraction_split(images.train_labels, len(cifar.CLASSES), 1 - config.validation, 0.0, seed)
    train = images.train[split["train"]], images.train_labels[split["train"]]
    held_out = {
        "val": (images.train[split["val"]], images.train_labels[split["val"]]),
        "test": (images.test, images.test_labels),
    }
    held_out = {name: pair for name, pair in held_out.items() if len(pair[1])}
    metric = Metric("accuracy", "max")
    if layout == "sharded":
        shards = {name: Shard(standardised(pixels), labels) for name, (pixels, labels) in held_out.items()}
        own = Shard(standardised(train[0]), train[1])
        how = {"classes": len(cifar.CLASSES), "workers": parties, "seed": seed}
        return partition.shard(config.name, own, shards, images.source, metric, config, **how)
    sizes = None
    if config.augment:
        sizes = {f"party {p}": shipping.rows(part) for p, part in enumerate(divide(train[0], parties)) if p}
        rng = stream(seed, "augment")
        train = (
            np.concatenate([augmented(train[0], rng) for _ in range(config.augment)]),
            np.tile(train[1], config.augment),
        )
    blocks = {name: divide(pixels, parties) for name, (pixels, _) in held_out.items()}
    known = {name: labels for name, (_, labels) in held_out.items()}
    return AlignedTask(
        config.name,
        images.source,
        metric,
        len(cifar.CLASSES),
        0,
        divide(train[0], parties),
        train[1],
        blocks,
        known,
        table_sizes=sizes,
    )


def augmented(images: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Images (n, 3, 32, 32): each a random crop of itself within a border of 4 black pixels, and by chance mirrored."""
    padded = np.pad(images, ((0, 0), (0, 0), (PADDING, PADDING), (PADDING, PADDING)))
    down, right = rng.integers(0, 2 * PADDING + 1, (2, len(images), 1))
    rows, columns = down + np.arange(images.shape[2]), right + np.arange(images.shape[3])
    mirrored = rng.random(len(images)) < 0.5
    columns[mirrored] = columns[mirrored, ::-1]
    at = np.arange(len(images))[:, None, None]
    # numpy puts the axes of index arrays first
    return padded[at, :, rows[:, :, None], columns[:, None, :]].transpose(0, 3, 1, 2)


def divide(images: np.ndarray, parties: int) -> tuple[np.ndarray, ...]:
    """Images (n, 3, 32, 32), cut into one, two or four parts of the same size."""
    halves = np.split(images, 2 if parties > 1 else 1, axis=2)
    return tuple(
        np.ascontiguousarray(part) for half in halves for part in np.split(half, 2 if parties == 4 else 1, axis=3)
    )


def standardised(images: np.ndarray) -> np.ndarray:
    """Images (n, 3, 32, 32) uint8 as float32, each colour standardised by its `MEAN` and `DEVIATION`."""
    mean, deviation = (np.array(values, np.float32)[:, None, None] for values in (MEAN, DEVIATION))
    scaled: np.ndarray = (images / np.float32(255) - mean) / deviation
    return scaled
