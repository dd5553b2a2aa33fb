"""Who learns what, as the report's page shows it: the `exposure` of each method's summary."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

from vflbench.plots import style
from vflbench.results.selection import Setting

HEADS = ("who", "whose data", "what", "form", "how", "phase", "messages", "how often", "covered by", "shown by", "note")
COLUMNS = (
    *("observer", "subject", "kind", "form", "how", "phase", "tags", "times"),
    *("covered_by", "proof", "note"),
)


def tables(settings: Iterable[Setting]) -> list[dict[str, Any]]:
    """One table for each method and exposure: `names` of its settings, `note`, and `rows` of texts, for `HEADS`.

    Runs of versions that kept none are left out.
    """
    found: dict[str, dict[str, Any]] = {}
    for setting in settings:
        exposure = setting.runs[0].summary.get("exposure")
        if exposure is None:
            continue
        label = style.look(setting.algorithm).label
        rows = [[_cell(entry.get(column)) for column in COLUMNS] for entry in _entries(exposure)]
        table = {"label": label, "settings": [], "note": exposure["note"], "rows": rows}
        found.setdefault(str((label, exposure)), table)["settings"].append(setting.words)
    many = Counter(table["label"] for table in found.values())
    for table in found.values():  # settings are named where a method has several tables
        words = table["settings"] if many[table["label"]] > 1 else []
        table["name"] = " · ".join(filter(None, [table["label"], *dict.fromkeys(words)]))
    return list(found.values())


def _entries(exposure: dict[str, Any]) -> list[dict[str, Any]]:
    """Those of a summary, which anybody may have written."""
    return [entry for entry in exposure["entries"] if isinstance(entry, dict)]


def _cell(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return "" if value is None else str(value)
