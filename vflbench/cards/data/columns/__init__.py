"""Cards: facts, keys and rules of what can be chosen, without torch or NumPy."""
