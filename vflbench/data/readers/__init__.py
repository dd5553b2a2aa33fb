"""Readers of files and databases, and what their cells are: `table_sources.read_table` is the door to users' tables."""
