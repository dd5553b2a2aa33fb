"""Learning over joins of tables that are never joined: TablePuppet and its baselines."""
