"""Cards of attacks."""
