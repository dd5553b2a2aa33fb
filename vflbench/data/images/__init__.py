"""Image data sets: small readers of the original formats."""
