"""`vflbench choose` and `vflbench tune`: who enters, search, finals, and the answer (docs/concepts/choosing.md)."""
