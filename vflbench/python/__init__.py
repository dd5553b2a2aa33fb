"""What is called from Python: `vflbench.run`, `load`, `tables`, `report`, `reprice`, `plot`."""
