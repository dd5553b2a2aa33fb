"""Data: how they are found, read and divided between parties."""
