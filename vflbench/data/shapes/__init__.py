"""Data sets of shapes: objects seen from several sides."""
