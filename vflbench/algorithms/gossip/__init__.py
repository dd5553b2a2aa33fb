"""Workers with rows of their own that average models: LEASGD, FedAvg and their baselines."""
