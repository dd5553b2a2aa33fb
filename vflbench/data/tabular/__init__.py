"""Tabular data sets: one table of columns, which parties divide between them; as a problem to learn or as a convex
function to minimise."""
