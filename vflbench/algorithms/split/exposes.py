"""What split learning shows to whom: entries of `EXPOSES` that its methods share."""
