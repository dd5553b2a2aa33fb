"""`vflbench data`."""

import json
from pathlib import Path

from vflbench import registry
from vflbench.cli.words import RUNS, relative_path, say
from vflbench.data import sources
from vflbench.results.texts import align
from vflbench.types import VflbenchError


def command(args: list[str]) -> int:
    """`vflbench data status`, `get NAME ...`, `check FILE ...` or `profile`; the first three take data_root."""
    if args[:1] == ["check"]:
        from vflbench.cli import data_check

        return data_check.command(args[1:])
    named = [text.removeprefix("data_root=") for text in args if text.startswith("data_root=")]
    words = [text for text in args if not text.startswith("data_root=")]
    root = sources.data_root(named[-1] if named else None)
    if words == ["status"]:
        default = f"{sources.cache_folder()} (the default; data_root=... or VFLBENCH_DATA name another)"
        say(f"data root: {default if root is None else root}")
        rows = [["dataset", "found", "folder", ""]]
        for row in sources.status(root):
            lacking = [Path(name).name for name in row.missing]
            missing = (
                f"missing: {', '.join(lacking[:3])}{f' and {len(lacking) - 3} more' if lacking[3:] else ''}"
                if lacking
                else ""
            )
            variants = f"variant{'s' if row.variants[1:] else ''} {', '.join(row.variants)}" if row.variants else ""
            made_up = f"made up: {', '.join(row.made_up)}" if row.made_up else ""
            lacks = f"{row.variants[0] if row.variants else 'it'} is partial: {row.lacks}" if row.lacks else ""
            about = "; ".join(filter(None, (lacks, variants, made_up, missing)))
            rows.append([row.option, row.found, row.folder, about])
        rows += [[name, "real", "-", info.comes_with] for name, info in registry.datasets().items() if info.comes_with]
        say(align(rows))
        return 0
    if words[:1] == ["get"] and len(words) > 1:
        for name in words[1:]:
            row = sources.get(name, root)
            found = f"{row.found} ({row.lacks})" if row.lacks else row.found
            say(f"{row.option}: {found}, {len(row.present)} files in {(root or sources.cache_folder()) / row.folder}")
        return 0
    if words[:1] == ["profile"]:
        from vflbench.plots.delay_profile import draw_profile
        from vflbench.runner import profile

        made = profile.profile(profile.parse(words[1:]), RUNS / "profile")
        draw_profile(made)
        say(profile.in_words(json.loads(made.read_text(encoding="utf-8"))))
        say(f"fits: {relative_path(made.with_suffix('.png'))}")
        say(f"use them with compute=measured compute.file={relative_path(made)}")
        return 0
    raise VflbenchError(
        "usage: vflbench data status | vflbench data get NAME [NAME ...] | vflbench data check FILE [FILE ...], "
        "all with an optional data_root=DIR"
        " | vflbench data profile [key=value ...]"
    )
