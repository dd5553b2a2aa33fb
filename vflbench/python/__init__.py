"""The functions of `import vflbench`: `run`, `load`, `tables`, `choose`, `tune`, `plot`, `report`, `reprice`."""
