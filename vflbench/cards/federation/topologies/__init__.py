"""Cards of topologies."""
