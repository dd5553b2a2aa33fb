"""URLs of the user's databases: what a message may show of them, and whether they hold a password."""

import re

QUERY_TIMEOUT = 600.0  # seconds
_HOST = r"(?:[^:@/?#,\s\[\]]*|\[[0-9a-fA-F:.]+\])(?::\d+)?"
# No other URL is shown: it may hold a password at an unexpected place.
POSTGRES = re.compile(rf"postgres(?:ql)?://(?:[^:@/?#\s]+@)?{_HOST}(?:,{_HOST})*/[^:@/?#\s]+(?:\?[^@#\s]*)?")


def redacted(url: str) -> str:
    """`url` as a message may show it: of a server only user, host and database, and only if they are surely these."""
    scheme, found, _ = url.partition("://")
    if not found or scheme in ("sqlite", "duckdb"):
        return url
    return url.partition("?")[0] if POSTGRES.fullmatch(url) else f"{scheme}://***"


def holds_password(url: str) -> bool:
    """Whether the URL of a server has a password, before the @ or as a parameter."""
    scheme, found, rest = url.partition("://")
    address, _, parameters = rest.partition("?")
    secret = any("password" in pair.partition("=")[0].lower() for pair in parameters.split("&"))
    return bool(found) and scheme not in ("sqlite", "duckdb") and (secret or ":" in address.rpartition("@")[0])
