"""What cards of loggers share."""

import importlib.util

from vflbench.types import Problem


def needs(package: str, extra: str) -> list[Problem]:
    """A problem if `package` is not installed; the extra `extra` of vflbench installs it."""
    if importlib.util.find_spec(package) is not None:
        return []
    return [Problem("logger", extra, f"needs a package that is not installed: pip install 'vflbench[{extra}]'")]
