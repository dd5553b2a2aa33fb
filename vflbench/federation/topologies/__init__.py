"""Topologies, an option a file: who may talk to whom (federation/topology.py says what is made of that)."""
