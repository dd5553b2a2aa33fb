"""Cards of tables to be joined."""
