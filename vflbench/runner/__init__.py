"""Drives one run: builds parties and engine, evaluates, checks budgets, checkpoints, and writes the run folder."""
