"""Data: where it is found, how it is read and divided between parties."""
