"""Texts for a terminal, Markdown, a spreadsheet and a page, which show other people's texts but never obey them.

Also numbers of bytes, and budgets of privacy.
"""

import logging
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any


def printable(text: str) -> str:
    """`text` with escapes for control characters and for changes of the writing direction.

    Line breaks and tabs stay. A terminal obeys control characters, and an SVG with one is malformed.
    """
    if all(line.isprintable() for line in text.split("\n")):  # nearly always
        return text
    return "".join(c if c.isprintable() or c in "\n\t\xa0" else c.encode("unicode_escape").decode() for c in text)


class Formatter(logging.Formatter):
    """The printable lines of a log."""

    def format(self, record: logging.LogRecord) -> str:
        """The line, without control characters."""
        return printable(super().format(record))


def in_line(text: str) -> str:
    """`text` printable and without line breaks."""
    return printable(" ".join(text.split()))


def markdown(text: str) -> str:
    """One line of Markdown that shows `text`; nothing in it becomes a link, picture, markup or table cell."""
    return re.sub(r"([\\`*\[\]<>|&~#]|(?<![^\W_])_|_(?![^\W_])|^[-+=](?=\s|[-+=]))", r"\\\1", in_line(text))


def code(text: str) -> str:
    """`text` as code in a line of Markdown, also in a table; its backticks become apostrophes."""
    return f"`{in_line(text).replace('`', chr(39))}`".replace("|", r"\|") if text else ""


def markdown_table(
    heads: Sequence[str], rows: Sequence[Sequence[str]], forms: Mapping[str, Callable[[str], str]]
) -> list[str]:
    """The lines of a table in Markdown.

    `forms`: head -> function that makes Markdown of its cells. Texts of other columns are shown as they are.
    """
    shown = [[forms.get(head, markdown)(cell) for head, cell in zip(heads, row, strict=True)] for row in rows]
    return [f"| {' | '.join(line)} |" for line in (map(markdown, heads), ["---"] * len(heads), *shown)]


def spreadsheet(value: Any) -> Any:
    """A cell of a CSV file; an apostrophe goes before a text that a spreadsheet would take for a formula."""
    if not isinstance(value, str):
        return value
    text = printable(value)
    try:
        float(text)
    except ValueError:
        return f"'{text}" if text.lstrip()[:1] in ("=", "+", "-", "@") and text.strip() else text
    return text


def content_policy(style: str, script: str | None = None, images: str = "data:") -> str:
    """The Content-Security-Policy of a page that allows only its own `style` and `script`, by their hashes.

    With `script` None no script runs. `images` says where pictures may come from.
    """

    import base64
    import hashlib  # with OpenSSL, which `vflbench list` does not need

    def known(text: str) -> str:
        return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"

    scripts = f"script-src {known(script)}; require-trusted-types-for 'script'; " if script is not None else ""
    return (
        f"default-src 'none'; {scripts}style-src {known(style)}; img-src {images}; base-uri 'none'; form-action 'none'"
    )


_PREFIXES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))  # SI: 1 MB is 1,000,000 bytes


def si_scale(largest: float) -> tuple[float, str]:
    """The divisor and prefix that bring `largest` between 1 and 1000."""
    return next(((divisor, prefix) for divisor, prefix in _PREFIXES if abs(largest) >= divisor), (1.0, ""))


def human_bytes(count: float) -> str:
    """A number of bytes as text: `12345678` -> `12.3 MB`."""
    divisor, prefix = si_scale(count)
    return f"{count / divisor:.3g} {prefix}B" if prefix else f"{count:.0f} B"


def as_text(value: Any) -> str:
    """A configuration's value as text, for comparisons: 10 and 10.0 are the same."""
    number = isinstance(value, float) or (isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63)
    return f"{value:.12g}" if number else str(value)


def data_alarm(of: Mapping[str, Any]) -> str:
    """A short warning where data are not the whole real data set; empty where they are.

    Parameters
    ----------
    of : a summary, or whatever has its keys `data_source` and perhaps `data_lacks`.
    """
    lacks = of.get("data_lacks")
    partial = f"PARTIAL DATA, {lacks}" if lacks else "PARTLY SYNTHETIC DATA"
    return {"synthetic": "SYNTHETIC DATA", "partial": partial}.get(of.get("data_source") or "", "")


def data_warning(of: Mapping[str, Any], name: str, synthetic: str) -> str | None:
    """The same as sentences, and that columns give the label away; None where there is nothing to warn of.

    `synthetic` ends the sentence where all data are made up.
    """
    lacks, leaks = of.get("data_lacks"), "; ".join(map(str, of.get("leaks") or ()))
    return {
        "synthetic": f"SYNTHETIC DATA: {name} is made up here. {synthetic}",
        "partial": f"PARTIAL DATA: {name} is real here, but not all of it: {lacks}."
        if lacks
        else f"PARTLY SYNTHETIC DATA: parts of {name} are made up.",
    }.get(
        of.get("data_source") or "",
        (leaks and f"LABEL LEAK: a column alone nearly determines the label. {leaks}.") or None,
    )


def result_line(summary: Mapping[str, Any]) -> str:
    """The run in one line: metric, bytes, time, where the data came from."""
    from vflbench.results.folder import splits

    metric, status = summary["metric"], summary["status"]
    if metric["selected"] is not None:
        score = (
            f"test_{metric['name']} {metric['selected']:.4g} (selected on validation at round "
            f"{metric['selected_round']})"
        )
    elif metric["final"] is not None:
        score = f"{splits(metric['name'])[-1]}_{metric['name']} {metric['final']:.4g} (at the end)"
    else:
        score = "not evaluated"
    score += served_in_words(summary["privacy"].get("serving"))
    source = data_alarm(summary) or "real data"
    privacy, attacked = summary["privacy"], attack_in_words(summary.get("attack"))
    epsilon = epsilon_in_words(privacy["epsilon"], privacy["covers"], attacked, label_epsilon([privacy]))
    parts = [
        *([] if status == "completed" else [f"{status}{': ' + summary['reason'] if summary.get('reason') else ''}"]),
        score,
        human_bytes(summary["bytes"]["total"]),
        f"{summary['virtual_seconds']:.4g} s running time"
        if summary["communication_seconds"] is None
        else f"{summary['communication_seconds']:.4g} s communication",
        *([] if epsilon is None else [f"epsilon {epsilon}"]),
        source,
        *([f"LABEL LEAK: {'; '.join(map(str, leaks))}"] if (leaks := summary.get("leaks")) else []),
    ]
    return " · ".join(parts)


# --- budgets of privacy -----------------------------------------------------------------------------------------------


def guarantee(privacy: Mapping[str, Any] | None) -> str | None:
    """What a finite epsilon is about: unit, neighbouring relation and coverage; None without one.

    Only epsilons about the same can be compared. Where delta allows to publish a row, epsilon guarantees nothing.
    """
    if not privacy or privacy["epsilon"] is None or math.isinf(float(privacy["epsilon"])):
        return None
    if privacy.get("delta_too_large"):
        return None
    unit, relation = privacy["unit"], {"replace_one": "replaced", "add_remove": "added or removed"}
    labels = "; labels at an epsilon of their own" if privacy.get("label_unit") not in (None, unit) else ""
    changed = relation.get(privacy["neighbouring"], "changed")
    return f"{unit or 'an unknown unit'}, {changed}; covers the {privacy['covers'] or 'unknown'}{labels}"


def label_epsilon(privacies: Iterable[Mapping[str, Any]]) -> float | None:
    """The largest epsilon of labels, where they are another unit than that of `epsilon`; None without one."""
    apart = [one.get("label_epsilon") for one in privacies if one.get("label_unit") not in (None, one["unit"])]
    return max((float(one) for one in apart if one == "inf" or isinstance(one, int | float)), default=None)


def epsilon_in_words(
    epsilon: float | str | None, covers: str | None, attacked: str | None = None, labels: float | None = None
) -> str | None:
    """An epsilon with what it covers, unless that is the transcript; None without one.

    Parameters
    ----------
    attacked : what an attack found.
    labels : `label_epsilon`.
    """
    if epsilon is None:
        return None
    words = _with_infinity(float(epsilon))
    if covers != "transcript" and not math.isinf(float(epsilon)):
        words += f" (of the {covers or 'unknown'} only)"
    if labels is not None:
        words += f", of labels {_with_infinity(labels)}"
    return f"{words}; {attacked}" if attacked else words


def served_in_words(serving: Mapping[str, Any] | None) -> str:
    """The test metric of rows served the other way, beside that of the chosen one; empty without one."""
    if not serving:
        return ""
    if serving["chosen"] == "noisy":
        return f", with noise on served rows; without it {serving['clean']:.4g}, and no guarantee for them"
    return f", without noise on served rows, for which epsilon is no guarantee; with it {serving['noisy']:.4g}"


def _with_infinity(epsilon: float) -> str:
    return f"{epsilon:.4g}{' (no guarantee)' if math.isinf(epsilon) else ''}"


def attack_in_words(attack: Mapping[str, Any] | None) -> str | None:
    """What an attack found beyond its floor, which is to stand beside an epsilon; None where it found no more."""
    attack = attack or {}
    found, floor = attack.get("success", attack.get("success_rate")), attack.get("floor")  # the latter of older runs
    least = (attack.get("interval") or [1.0])[0]
    if found is None or floor is None or found - floor <= 0 or (isinstance(least, int | float) and least <= 0):
        return None
    return f"{attack.get('name', 'an attack')} finds {found:.3g}, a guess {floor:.3g}"


def align(rows: list[list[str]]) -> str:
    """Rows of text in aligned columns, one line each; the first row has the names of the columns."""
    rows = [[in_line(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    numbers = ("seeds", "selected", "final", "sent", "communication")
    places = [f"{'>' if name in numbers else '<'}{width}" for name, width in zip(rows[0], widths, strict=True)]
    return "\n".join(
        "  ".join(format(cell, place) for cell, place in zip(row, places, strict=True)).rstrip() for row in rows
    )
