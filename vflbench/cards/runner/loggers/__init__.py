"""Cards of loggers."""
