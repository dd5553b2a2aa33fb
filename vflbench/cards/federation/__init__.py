"""Cards of options of the federation."""
