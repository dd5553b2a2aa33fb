"""The configuration of `dataset=sql`, which describes the user's own tables, and its checks."""

from vflbench.cards.data.relational.sql import Config, Table, _listed
from vflbench.data.divide import splits
from vflbench.data.readers import table_sources
from vflbench.data.readers.table_sources import Source
from vflbench.data.tasks import Equality
from vflbench.types import Problem, closest

TASKS = {"regression": ("rmse",), "classes": ("accuracy", "auroc")}  # task -> its metrics, the default first


def parts_of(config: Config, name: str) -> list[Source]:
    """Where the horizontal parts of a table lie."""
    table = config.tables[name]
    urls = _listed(table.url)
    keys = (table.table, table.query, table.password_env, config.query_timeout)
    each = [value if isinstance(value, list) else [value] * len(urls) for value in keys]
    said = {key: getattr(table, key) for key in table_sources.OVERRIDES}
    return [Source(*values, **said) for values in zip(urls, *each, strict=True)]


def _equality(text: str) -> Equality | None:
    """The predicate "a.x = b.y"; None if `text` is not of this form."""
    sides = [tuple(part.strip() for part in side.split(".", 1)) for side in text.split("=")]
    if len(sides) != 2 or not all(len(side) == 2 and all(side) for side in sides):
        return None
    (a, x), (b, y) = sides
    return Equality((a, x), (b, y))


def joins_of(config: Config) -> tuple[Equality, ...]:
    """The join predicates that can be read."""
    return tuple(equality for equality in map(_equality, config.joins) if equality is not None)


def keys_of(config: Config, name: str) -> list[str]:
    """Key columns of a table: those that it lists, else those that the joins name."""
    named = [column for e in joins_of(config) for table, column in (e.left, e.right) if table == name]
    listed = config.tables[name].keys
    return list(dict.fromkeys(named if listed is None else listed))


def roles_of(config: Config, name: str) -> dict[str, list[str]]:
    """The columns that the configuration names, by role."""
    table = config.tables[name]
    return {
        "keys": keys_of(config, name),
        "label": _listed(table.label),
        "features": _listed(table.features),
        "categories": list(table.categories),
    }


def deciding(config: Config, name: str) -> dict[str, str]:
    """The columns of a table that its split follows, by their keys: they are no features unless they are listed so."""
    keys = {"dataset.time": config.time, "dataset.entity": config.entity}
    return {key: column for key, column in keys.items() if column and config.tables[name].label is not None}


def called(config: Config, name: str) -> str:
    """How messages name a table."""
    owner = config.tables[name].organisation
    return f"table {name} of {owner}" if owner else f"table {name}"


# --- the configuration ------------------------------------------------------------------------------------------------


def check(config: Config, layout: str, parties: int) -> list[Problem]:
    """What is wrong with the configuration, before any data are read; files and variables must be there."""
    problems = splits.check_fractions(config.validation, config.test)
    if not config.tables:
        advice = "describe yours in DIR/dataset/sql.yaml and give --config-dir DIR, as examples/dataset/sql.yaml does"
        return [*problems, Problem("dataset.tables", "{}", f"names no tables: {advice}")]
    problems += _check_task(config)
    problems += splits.check_keys(config, {f"dataset.tables.{n}.label": t.label for n, t in config.tables.items()})
    for name, table in config.tables.items():
        problems += _check_table(config, name, table)
    labels = [name for name, table in config.tables.items() if table.label is not None]
    if len(labels) != 1:
        allowed = f"exactly one table has the label column, not {' and '.join(labels) or 'none'}"
        problems.append(Problem("dataset.tables.*.label", ", ".join(labels) or "null", allowed))
    return problems + _check_joins(config)


def _check_task(config: Config) -> list[Problem]:
    problems = []
    allowed = TASKS[config.task]
    if config.metric is not None and config.metric not in allowed:
        reason = f"must be one of {', '.join(allowed)} for task={config.task}"
        problems.append(Problem("dataset.metric", config.metric, reason, closest(config.metric, allowed)))
    if config.classes is None:
        return problems
    if config.task == "regression":
        problems.append(Problem("dataset.classes", config.classes, "belongs to task=classes"))
    count = config.classes if isinstance(config.classes, int) else len(set(map(str, config.classes)))
    if count < 2 or (isinstance(config.classes, list) and count < len(config.classes)):
        problems.append(Problem("dataset.classes", config.classes, "must be at least 2, all different"))
    if config.metric == "auroc" and count != 2:
        problems.append(Problem("dataset.metric", "auroc", f"is for two classes, not {count}"))
    if isinstance(config.classes, list):
        if any(isinstance(label, bool) for label in config.classes):
            reason = "must be quoted: YAML reads yes, no, true and false as truth values"
            problems.append(Problem("dataset.classes", config.classes, reason))
        elif 0 < sum(isinstance(label, str) for label in config.classes) < len(config.classes):
            problems.append(Problem("dataset.classes", config.classes, "must be all numbers or all text (quote them)"))
    return problems


def _check_table(config: Config, name: str, table: Table) -> list[Problem]:
    key = f"dataset.tables.{name}"
    problems = []
    urls = len(_listed(table.url))
    if not urls:
        problems.append(Problem(f"{key}.url", "[]", "must name where the table lies"))
    lists = {what: getattr(table, what) for what in ("table", "query", "password_env")}
    unequal = {what: len(value) for what, value in lists.items() if isinstance(value, list) and len(value) != urls}
    for what, count in unequal.items():
        allowed = f"must have one for each of the {urls} URLs, or be one for all"
        problems.append(Problem(f"{key}.{what}", f"({count} entries)", allowed))
    if not unequal:
        found = [problem for source in parts_of(config, name) for problem in table_sources.check(source, key)]
        problems += list(dict.fromkeys(found))  # several parts may have the same problem
    if "." in name or "=" in name:
        problems.append(Problem(key, name, "a table's name cannot have a dot or =, which predicates are made of"))
    taken: dict[str, str] = {}
    for role, columns in roles_of(config, name).items():
        for column in columns:
            if taken.setdefault(column, role) != role:
                allowed = f"is one of {taken[column]} already: a column has one role"
                problems.append(Problem(f"{key}.{role}", column, allowed))
    if table.features is not None and not table.features and not table.categories:
        allowed = "every table needs a feature; where it has none, a query can add a constant"
        problems.append(Problem(f"{key}.features", "[]", allowed))
    return problems


def _check_joins(config: Config) -> list[Problem]:
    problems = []
    near = {name: {name} for name in config.tables}  # the tables that each one is joined with
    for text in config.joins:
        equality = _equality(text)
        if equality is None:
            problems.append(Problem("dataset.joins", text, "must be of the form table.column = table.column"))
            continue
        sides = (equality.left, equality.right)
        unknown = [table for table, _ in sides if table not in config.tables]
        for table in unknown:
            allowed = f"there is no table {table}; there are: {', '.join(config.tables)}"
            problems.append(Problem("dataset.joins", text, allowed, closest(table, config.tables)))
        for table, column in sides:
            if table not in unknown and column not in keys_of(config, table):
                listed = config.tables[table].keys or []
                allowed = f"{column} is not among the keys of {table}: {', '.join(listed)}"
                problems.append(Problem("dataset.joins", text, allowed, closest(column, listed)))
        if not unknown and sides[0][0] == sides[1][0]:
            problems.append(Problem("dataset.joins", text, "joins a table with itself; list it twice, under two names"))
        elif not unknown:
            group = near[sides[0][0]] | near[sides[1][0]]
            near |= dict.fromkeys(group, group)
    together = next(iter(near.values()))
    apart = [name for name in config.tables if name not in together]
    if apart and not problems:
        joined = ", ".join(name for name in config.tables if name in together)
        allowed = f"no predicate connects {', '.join(apart)} with {joined}"
        problems.append(Problem("dataset.joins", config.joins, allowed))
    return problems
