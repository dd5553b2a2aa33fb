"""Attacks: what an adversary makes of the transcript of messages that it received, and nothing else."""
