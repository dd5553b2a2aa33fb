"""Cards of graphs."""
