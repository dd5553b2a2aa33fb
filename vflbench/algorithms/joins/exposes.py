"""What methods over joins show to whom: entries of `EXPOSES` that they share."""
