"""Sphinx builds the site from the Markdown files here: `make docs`.

Sphinx with MyST rather than MkDocs: it reads the numpy-style docstrings, checks every cross-reference, and treats
warnings as errors.
"""

import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import options

from vflbench.version import __version__

project = "vflbench"
copyright = "the authors of vflbench, Apache-2.0"
version = release = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3
exclude_patterns = ["_build", "results/README.md", "results/*.j2"]

html_theme = "furo"
html_title = "vflbench"
html_show_sphinx = False
html_static_path = ["_static"]
html_css_files = ["site.css"]

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
napoleon_google_docstring = False
nitpicky = False
suppress_warnings = ["ref.python"]  # names that several dataclasses share, such as `name`


def plain_comments(app, what, name, obj, options, lines) -> None:
    """Comments beside the fields of a dataclass are plain text: a star in a shape is a star."""
    if what == "attribute":
        lines[:] = [line.replace("*", "\\*") for line in lines]


def numpy_entries(app, what, name, obj, options, lines) -> None:
    """Our docstrings have an entry on one line, `name : what it is`; napoleon reads it as a name and its type."""
    found, section = [], ""
    for line, following in zip(lines, [*lines[1:], ""][: len(lines)], strict=True):
        if re.fullmatch("-{3,}", following):
            section = line
        entry = re.fullmatch(r"(\S.*?) : (.+)", line)
        if section in ("Parameters", "Returns", "Raises") and entry:
            found += [entry[1], f"    {entry[2]}"]
        elif section == "Returns" and re.fullmatch(r"\w.*", line) and line != section:  # without a type
            found += [":", f"    {line}"]
        else:
            found.append(line)
    lines[:] = found


def setup(app) -> None:
    """Write the pages of the options before Sphinx looks for pages."""
    app.connect("autodoc-process-docstring", plain_comments)
    app.connect("autodoc-process-docstring", numpy_entries, priority=100)  # before napoleon
    app.connect("builder-inited", lambda app: options.write(Path(app.srcdir) / "reference"))
