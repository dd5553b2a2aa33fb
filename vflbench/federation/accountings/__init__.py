"""Accountings, a rule a file: what every message of a ledger costs."""
