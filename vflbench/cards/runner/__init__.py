"""Cards of options of the runner."""
