"""Least squares over a join in one exchange."""

from typing import Annotated, Literal

from vflbench.cards.algorithms.joins import join_messages
from vflbench.defaults import from_conf
from vflbench.types import AlgorithmInfo, Count, Implied, Interval, Problem, Range, RunConfig, Sent

ALGORITHM = AlgorithmInfo(
    name="gram_once",
    summary="least squares over a join in one exchange: tables send sums and rows once, and the minimum is exact",
    paper="Schleich, Olteanu, Ciucanu, SIGMOD 2016; Kumar, Naughton, Patel, SIGMOD 2015",
    label="Gram once",
    place=3,
    layouts=("relational",),
    divided_by="parts",
    reports=("partial",),
    models=("linear",),
    one_shot=True,
    exact="least squares is exact only with the very sums that were sent",
    refuses=(("any", "tables send whole rows and exact sums, which no mechanism clips or noises"),),
)
EXPOSES = (
    *join_messages.TABLES,
    Sent("ask", "server", "client", "sizes", "all", times="round 1", note="whether to send rows"),
    Sent("gram", "client", "server", "sums", "client", times="round 1"),
    Sent("sums", "client", "server", "sums", "client", times="round 1", note="by key, for each other table"),
    Sent("rows", "client", "server", "raw", "client", times="round 1", note="not of the keeper, nor with the labels"),
    Sent("moments", "server", "client", "sums", "all", when=("cross", "moments"), times="round 1"),
    Implied(
        "client",
        "label_owner",
        "labels",
        ("moments",),
        "argued",
        "moments begin with the mean label behind each of its rows",
        exact=True,
        times="round 1",
        when=("cross", "moments"),
    ),
    Sent("weights", "server", "client", "parameters", "all", times="round 1"),
)
SEARCH = {
    "algorithm.penalty": Interval(1e-6, 0.01, log=True),
    "algorithm.cross": ("moments", "rows"),
}


@from_conf()
class Config:
    """Keys of gram_once."""

    name: str
    parts: Count
    cross: Literal["moments", "rows"]
    penalty: Annotated[float, Range(at_least=0)]
    default_rounds: Count


def check(config: RunConfig[Config]) -> list[Problem]:
    """What is wrong across keys: the model must be the linear one."""
    model, problems = config.model, []
    if model.relu_output:
        problems.append(Problem("model.relu_output", "true", "least squares has no closed form with it: use false"))
    if model.intercept == "none":
        problems.append(Problem("model.intercept", "none", "the minimum has an intercept: use label"))
    return problems
