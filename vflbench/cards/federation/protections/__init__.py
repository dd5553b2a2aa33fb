"""Cards of protections."""
