"""What methods with tokens, and their rivals, show to whom: entries of `EXPOSES` that they share."""
