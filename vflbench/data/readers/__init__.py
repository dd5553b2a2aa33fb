"""Readers of files and databases, and what their cells are: `table_sources` is the door to tables of the user's own."""
