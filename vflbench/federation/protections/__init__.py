"""Protections, an option a file: how sums of what parties send are hidden from who adds them up."""
