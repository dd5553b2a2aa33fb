"""Where runs come from: their data, versions, machine and command; and what their methods assume."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from vflbench.plots import style
from vflbench.results.reader import Run
from vflbench.results.texts import epsilon_in_words
from vflbench.types import ASSUMED


def provenance(runs: Sequence[Run]) -> dict[str, list[tuple[str, int]]]:
    """Where the runs come from: each distinct value, and how many runs have it."""
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for run in runs:
        for name, value in _origin(run).items():
            if value:
                found[name][value] += 1
    return {name: counter.most_common() for name, counter in found.items()}


def _origin(run: Run) -> dict[str, str]:
    s, m = run.summary, run.manifest
    data, git, hardware = (m.get(key) or {} for key in ("data", "git", "hardware"))
    privacy, memory = s["privacy"], hardware.get("memory_bytes")
    files = [f"{name} ({digest[:12]})" for name, digest in data.get("files") or []]
    shown = [*files[:4], *([f"and {len(files) - 4} more files"] if len(files) > 4 else [])]
    machine = [hardware.get("cpu"), f"{hardware['cores']} cores" if hardware.get("cores") else None]
    machine += [f"{memory / 2**30:.0f} GiB" if memory else None, hardware.get("gpu"), f"device {s['device']}"]
    machine += [f"{m['threads']} threads" if m.get("threads") else None]
    return {
        "data": ", ".join(filter(None, [f"{s['data_source']} data", s["data_variant"], data.get("note"), *shown])),
        "status": s["status"] + (f": {s['reason']}" if s["reason"] else ""),
        "times": f"timing {s['timing']}, accounting {s['accounting']}, compute clock {s['compute_clock']}",
        "assumed to be there": _assumed(s),
        "privacy": "" if privacy["mechanism"] == "none" else _spent(privacy),
        "versions": ", ".join(f"{name} {version}" for name, version in (m.get("versions") or {}).items()),
        "git": f"{git['commit']}{' with changes' if git.get('dirty') else ''}" if git.get("commit") else "",
        "hardware": ", ".join(filter(None, machine)),
        "platform": m.get("platform") or "",
        "command": m.get("command") or "",
    }


def _spent(privacy: Mapping[str, Any]) -> str:
    """What a mechanism reports, in words."""
    found = {**privacy, "epsilon": epsilon_in_words(privacy["epsilon"], privacy["covers"])}
    for key, value in found.items():
        if isinstance(value, Mapping):
            found[key] = "; ".join(f"{name} {one}" for name, one in value.items())
        elif isinstance(value, list):
            found[key] = "; ".join(map(str, value))
    return ", ".join(f"{key} {value}" for key, value in found.items() if value is not None)


def _assumed(summary: Mapping[str, Any]) -> str:
    """What the run's method assumes to be there for nothing, in words."""
    found = [ASSUMED.get(what, str(what)) for what in summary.get("assumes", ())]
    return f"{style.look(summary['algorithm']).label}: {'; '.join(found)}" if found else ""
