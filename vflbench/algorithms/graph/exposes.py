"""What methods that split a graph network show to whom: entries of `EXPOSES` that they share."""
