"""Cards of methods on rows of each worker's own."""
