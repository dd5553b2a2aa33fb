"""How rows, columns and nodes are divided: into splits, and between parties."""
