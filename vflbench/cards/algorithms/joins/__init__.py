"""Cards of methods over joins."""
