"""The benchmarks of `scripts/bench.py`, a file per room of the package."""
