"""Cards of methods on graphs."""
