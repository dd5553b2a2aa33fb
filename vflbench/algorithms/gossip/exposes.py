"""What methods with a whole model at every worker show to whom: entries of `EXPOSES` that they share."""
