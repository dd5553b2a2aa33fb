"""Cards of sets of images."""
