"""Methods of one exchange: the data, or what stands for them, are sent once, and one party learns from them at home."""
