"""Texts as a terminal, Markdown, a spreadsheet and a page show them: others' are read and never obeyed; and numbers of
bytes."""

import base64
import hashlib
import logging
import re
from typing import Any


def printable(text: str) -> str:
    """`text` with its control characters, and what turns the direction of writing, as escapes; line breaks and tabs
    stay.

    A terminal takes commands by control characters, and an SVG that has one is malformed.
    """
    return "".join(c if c.isprintable() or c in "\n\t\xa0" else c.encode("unicode_escape").decode() for c in text)


class Formatter(logging.Formatter):
    """A log's lines, printable."""

    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record))


def in_line(text: str) -> str:
    """`text` printable and without line breaks."""
    return printable(" ".join(text.split()))


def markdown(text: str) -> str:
    """One line of Markdown that shows `text`: no link, picture, markup or cell of a table comes of it."""
    return re.sub(r"([\\`*\[\]<>|&~#]|(?<![^\W_])_|_(?![^\W_])|^[-+=](?=\s|[-+=]))", r"\\\1", in_line(text))


def code(text: str) -> str:
    """`text` as code in a line of Markdown, also in a table; its backticks become apostrophes."""
    return f"`{in_line(text).replace('`', chr(39))}`".replace("|", r"\|") if text else ""


def spreadsheet(value: Any) -> Any:
    """A cell of a CSV file; a text that a spreadsheet program would take for a formula gets an apostrophe before it."""
    if not isinstance(value, str):
        return value
    text = printable(value)
    try:
        float(text)
    except ValueError:
        return f"'{text}" if text.lstrip()[:1] in ("=", "+", "-", "@") and text.strip() else text
    return text


def content_policy(style: str, script: str | None = None, images: str = "data:") -> str:
    """The Content-Security-Policy of a page: its own `style` and `script` are known by their hashes, and nothing else
    is run or loaded.

    With `script` None the page has none, and runs none; `images` is where these may come from.
    """

    def known(text: str) -> str:
        return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"

    scripts = f"script-src {known(script)}; require-trusted-types-for 'script'; " if script is not None else ""
    return (
        f"default-src 'none'; {scripts}style-src {known(style)}; img-src {images}; base-uri 'none'; form-action 'none'"
    )


_PREFIXES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))  # SI: 1 MB is 1,000,000 bytes


def si_scale(largest: float) -> tuple[float, str]:
    """Divisor and prefix that make `largest` a number between 1 and 1000."""
    return next(((divisor, prefix) for divisor, prefix in _PREFIXES if abs(largest) >= divisor), (1.0, ""))


def human_bytes(count: float) -> str:
    """`12345678` -> `12.3 MB`."""
    divisor, prefix = si_scale(count)
    return f"{count / divisor:.3g} {prefix}B" if prefix else f"{count:.0f} B"
