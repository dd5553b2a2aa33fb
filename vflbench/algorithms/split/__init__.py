"""Split learning, synchronous and asynchronous: PubSub-VFL and its baselines."""
