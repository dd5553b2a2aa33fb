"""SI prefixes for bytes: 1 MB is 1,000,000 bytes."""

_PREFIXES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def si_scale(largest: float) -> tuple[float, str]:
    """Divisor and prefix that make `largest` a number between 1 and 1000."""
    return next(((divisor, prefix) for divisor, prefix in _PREFIXES if abs(largest) >= divisor), (1.0, ""))


def human_bytes(count: float) -> str:
    """`12345678` -> `12.3 MB`."""
    divisor, prefix = si_scale(count)
    return f"{count / divisor:.3g} {prefix}B" if prefix else f"{count:.0f} B"
