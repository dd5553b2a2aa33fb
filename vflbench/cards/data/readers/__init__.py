"""Cards of readers of files and databases."""
