"""Cards of methods."""
