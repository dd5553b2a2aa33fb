"""BlogFeedback (Buza 2014, UCI): blog posts, 280 columns; the target is the number of comments in the next 24 hours.

The published training file and the 60 test files together are the 60,021 rows of PubSub-VFL. Rows are held out at
random, as in the other data sets. With `split=time` the training file trains, and the days of the test files are for
validation and testing: rows of one file are not ordered.
"""

import functools

import numpy as np

from vflbench.cards.data.tabular.blog import DATASETS
from vflbench.data.published_files import Lines
from vflbench.data.sources import RawFile
from vflbench.data.tabular import table
from vflbench.data.tabular.sets import Edition, Files, Form, TabularSet
from vflbench.data.tabular.table import Layout, Table
from vflbench.seeding import stream
from vflbench.types import Metric

# The published names: one test file a day, an hour later from 26 March on.
_DAYS = [(2, day) for day in range(1, 30)] + [(3, day) for day in range(1, 32)]
NAMES = (
    "blogData_train.csv",
    *(
        f"blogData_test-2012.{month:02d}.{day:02d}.{'01' if (month, day) >= (3, 26) else '00'}_00.csv"
        for month, day in _DAYS
    ),
)
COLUMNS = tuple(f"x{number}" for number in range(1, 281))
SAMPLES = 60021
TRAINING = 52397  # of them in the training file, which is earlier than all test files


def twin(samples: int = SAMPLES) -> Table:
    """Made-up posts with the original's kinds of columns.

    A blog has 50 statistics. A post has 10 counts, 2 sizes, 200 rare words, 14 weekday flags, and 4 numbers about
    parent posts. Two posts in three get no comment, a few get a hundred.
    """
    rng = stream(0, "twin/blog")
    blog = rng.integers(0, samples // 40 + 1, samples)
    fame = rng.exponential(1.0, samples // 40 + 1)[blog]
    statistics = (
        np.exp(rng.normal(0, 0.7, (samples // 40 + 1, 50)))[blog] * (5 * fame)[:, None] * rng.uniform(0.2, 2, 50)
    )
    recent = rng.poisson(fame[:, None] * rng.uniform(0.3, 3, 10) * rng.gamma(0.4, 2.5, (samples, 1)))
    age, size = rng.uniform(0, 72, samples).round(), rng.lognormal(7, 1.2, samples).round()
    words = rng.random((samples, 200)) < np.geomspace(0.2, 0.002, 200)
    days = np.eye(7)[rng.integers(0, 7, (2, samples))]
    parents = rng.poisson(0.1, (samples, 4)).cumsum(axis=1)
    values = np.column_stack([statistics, recent, age, size, words, days[0], days[1], parents])
    expected = 0.5 * recent[:, :3].sum(axis=1) * np.exp(-age / 24) + 0.2 * fame * (
        1 + words @ rng.normal(0, 0.5, 200)
    ).clip(0)
    comments = rng.poisson(expected * rng.gamma(1.5, 1 / 1.5, samples)).astype(np.float64)
    first = min(TRAINING, samples)
    published = np.arange(samples - first) * len(_DAYS) // max(samples - first, 1)
    return Table(values, COLUMNS, {}, comments, 0, times=np.append(np.zeros(first, np.int64), published + 1))


_read = functools.partial(
    table.read_table, layout=Layout((*COLUMNS, "comments"), {}, header=0, in_turn=True), target="comments"
)
_FORMS = (
    Form((RawFile("blogfeedback/BlogFeedback.zip"),), _read, Lines(header=0, members=NAMES), 281, NAMES),
    Form(tuple(RawFile(f"blogfeedback/{name}") for name in NAMES), _read, Lines(header=0), 281),
)
FILES = Files(DATASETS[0], "posts", (Edition(COLUMNS, _FORMS, twin, SAMPLES),))
FILE_SETS = (FILES.file_set(),)
SET = TabularSet(DATASETS[0], Metric("rmse", "min"), FILES.columns, FILES.make)
check, load = SET.check, SET.load
