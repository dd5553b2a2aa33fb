"""Cards of methods with tokens, and of their rivals."""
