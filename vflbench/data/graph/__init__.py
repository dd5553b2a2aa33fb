"""Graph data sets: one module per file format, each giving `GraphTask`s."""
