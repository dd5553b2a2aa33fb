"""The algorithms that vflbench compares, in one package per family."""
