"""Graph data sets: one module per file format, each of which loads a `GraphTask`."""
