"""Relational data sets: tables of organisations, and the join that stands behind them."""
