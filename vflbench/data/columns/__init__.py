"""What columns of a user's own tables are taken for, and how they become numbers."""
