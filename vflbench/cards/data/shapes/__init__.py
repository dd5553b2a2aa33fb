"""Cards of sets of shapes."""
