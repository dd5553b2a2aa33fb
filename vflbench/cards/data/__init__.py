"""Cards of data sets."""
