"""The command itself: CPU seconds until it answers."""

import resource
import statistics
import subprocess
import sys
from pathlib import Path

from benchmarks.common import say


def start() -> None:
    command = Path(sys.executable).parent / "vflbench"
    for args in (["--help"], ["list"]):
        seconds = []
        for _ in range(5):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run([str(command), *args], stdout=subprocess.DEVNULL, check=True)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            seconds.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        say(f"start: CPU seconds of vflbench {' '.join(args)} (under 1)", f"{statistics.median(seconds):.2f}")
