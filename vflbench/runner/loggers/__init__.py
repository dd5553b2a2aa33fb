"""Loggers: each module is an option that logs a run while it trains (contracts.Logger)."""
