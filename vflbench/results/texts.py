"""Texts for a terminal, Markdown, a spreadsheet and a page, which show other people's texts but never obey them.

Also numbers of bytes.
"""

import base64
import hashlib
import logging
import re
from collections.abc import Iterable, Sequence
from typing import Any


def printable(text: str) -> str:
    """`text` with escapes for control characters and for changes of the writing direction.

    Line breaks and tabs stay. A terminal obeys control characters, and an SVG with one is malformed.
    """
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


def shown_to(discloses: Iterable[Sequence[str]]) -> str:
    """What an algorithm shows to whom, (from, to, what), in words."""
    whats: dict[tuple[str, str], list[str]] = {}
    for sender, receiver, what in discloses:
        whats.setdefault((sender, receiver), []).append(what)
    found = "; ".join(f"{sender} to {receiver}: {', '.join(whats[sender, receiver])}" for sender, receiver in whats)
    return found or "nothing"
