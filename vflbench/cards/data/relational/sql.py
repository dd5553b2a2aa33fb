"""The user's own tables, joined on keys."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from vflbench.cards.data import divide
from vflbench.cards.data.readers import table_sources
from vflbench.defaults import from_conf
from vflbench.types import DatasetInfo, Problem, Range, refuse

DATASETS = (
    DatasetInfo(
        name="sql",
        summary="your own tables: CSV, Parquet, SQLite, DuckDB, PostgreSQL, joined on keys",
        layouts=("relational", "aligned"),
        sources=("real",),
    ),
)


@dataclass
class Table:
    """Keys of one table."""

    url: str | list[str]  # where it lies; several: one per horizontal part
    table: str | list[str] | None = None  # its name in a database; of several parts one name, or one each
    query: str | list[str] | None = None  # or a SELECT
    password_env: str | list[str] | None = None  # PostgreSQL: the environment variable that holds the password
    # of a text file or a spreadsheet, null: inferred
    separator: str | None = None
    decimal: str | None = None
    encoding: str | None = None
    header: bool | None = None
    sheet: str | None = None
    password: str | None = None  # refused: every run keeps its configuration
    organisation: str | None = None  # its owner, for messages
    keys: list[str] | None = None  # columns that identify and are no features; null: those that the joins name
    # columns to learn from; null: all others of numbers or dates that are not constant
    features: list[str] | None = None
    categories: list[str] = field(default_factory=list)  # columns that become one 0/1 feature for each of their values
    # of columns stored as something else
    types: dict[str, Literal["number", "text", "date"]] = field(default_factory=dict)
    label: str | None = None  # in exactly one table: the column to predict


@from_conf()
class Config(divide.SplitKeys):
    """Keys of the data set; `time` and `entity` are columns of the table with the label."""

    name: str
    source: Literal["auto", "real"]
    variant: Literal["auto"]
    tables: dict[str, Table]
    query_timeout: Annotated[float, Range(above=0, at_most=1e6)]
    joins: list[str]
    task: Literal["regression", "classes"]
    classes: int | list[Any] | None
    metric: str | None
    validation: float
    test: float

    def __post_init__(self) -> None:
        """Refuse passwords at once: sweeps write the configuration to disk before they check it."""
        reason = "runs keep their configuration, so no password may be in it"
        advice = f"{reason}: put it into an environment variable, and name that in"
        problems = []
        for name, table in self.tables.items() if isinstance(self.tables, Mapping) else ():
            key = f"dataset.tables.{name}"
            if not isinstance(table, Table):
                continue  # it could not be read as one
            if table.password is not None:
                problems.append(Problem(f"{key}.password", "***", f"{advice} {key}.password_env"))
            for url in _listed(table.url):
                if isinstance(url, str) and table_sources.holds_password(url):
                    problems.append(Problem(f"{key}.url", table_sources.redacted(url), f"{advice} {key}.password_env"))
        refuse(problems)


def _listed(value: Any) -> list[Any]:
    return [] if value is None else list(value) if isinstance(value, list | tuple) else [value]
