"""Bin numbers of columns, as boosted trees see them, and their bits."""

MOST_BINS = 256  # a bin number is a byte before it is packed
