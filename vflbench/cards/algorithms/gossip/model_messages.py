"""What methods with a whole model at every worker show to whom: entries of `EXPOSES` that they share."""

from vflbench.types import Given, Implied

NOISED = ("dp_sgd",)
SETUP = (
    Given("all", "worker", "sizes", "how many training rows each worker has"),
    Given("all", "worker", "sums", "means and scales of columns and of a regression's targets, and categories"),
)
# where an observer sees a worker's model before and after its steps; to whom: worker or server
_STEPS = "the difference of two models is the worker's step"


def of_models(observer: str, tag: str) -> tuple[Implied | Given, ...]:
    """What whole models tell an observer, where messages of `tag` carry them."""
    return (
        Implied(observer, "worker", "gradients", (tag,), "argued", _STEPS, noised=NOISED, unit="example"),
        Implied(
            observer, "worker", "labels", (tag,), "argued",
            f"{_STEPS}: its last bias tells the shares of classes, as label_histogram reads them from a gradient",
            noised=NOISED,
        ),
        Implied(
            observer, "worker", "features", (tag,), "argued",
            f"{_STEPS}: that of a small batch can be inverted (Zhu et al. 2019, arXiv 1906.08935)", noised=NOISED,
        ),
        *SETUP,
    )  # fmt: skip
