"""Loggers: modules that tell others of a run while it trains, an option each (contracts.Logger)."""
