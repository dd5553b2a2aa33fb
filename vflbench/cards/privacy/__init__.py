"""Cards of mechanisms."""
