"""Tabular data sets: one table, divided between the parties, to learn from or as a convex function to minimise."""
