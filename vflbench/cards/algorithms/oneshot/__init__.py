"""Cards of methods of one exchange."""
