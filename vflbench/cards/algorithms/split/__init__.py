"""Cards of split learning and its rivals."""
