"""Relational data sets: tables of organisations, and their join."""
