"""Graph networks on nodes whose features and edges are divided: GLASU and its baselines."""
