"""How long something may take, as people write it: 90s, 45 sec, 30min, 1h30m, 1.5 hours, 1d12h."""

import math
import re

ALLOWED = "must be a time above 0 with units, as in 90s, 30min, 1h30m, 2h or 1d"
#: seconds -> the words of a unit
UNITS = {
    1.0: ("s", "sec", "secs", "second", "seconds"),
    60.0: ("m", "min", "mins", "minute", "minutes"),
    3600.0: ("h", "hr", "hrs", "hour", "hours"),
    86400.0: ("d", "day", "days"),
}
SECONDS = {word: seconds for seconds, words in UNITS.items() for word in words}
PART = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]+)\s*", re.ASCII)


def read(text: str) -> float | None:
    """The seconds that a text means; None where it is no time above 0, or names a unit twice."""
    parts: list[tuple[str, str]] = PART.findall(text.lower())
    units = [SECONDS.get(word) for _, word in parts]
    whole = "".join(match.group() for match in PART.finditer(text.lower())) == text.lower()
    if not whole or None in units or len(set(units)) < len(units):
        return None
    found = sum(float(number) * SECONDS[word] for number, word in parts)
    return found if 0 < found < math.inf else None
