"""``python -m vflbench`` is ``vflbench``."""

from vflbench.cli import main

main()
