"""Vertical learning with tokens that walk from client to client: MTCD and its baselines."""
