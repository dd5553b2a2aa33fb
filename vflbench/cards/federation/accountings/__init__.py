"""Cards of accountings."""
