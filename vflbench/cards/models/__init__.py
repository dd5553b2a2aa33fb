"""Cards of networks."""
