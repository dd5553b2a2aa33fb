"""Cards of what columns are taken for."""
