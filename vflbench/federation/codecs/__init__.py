"""Codecs, an option a file: what is sent of an array, and what arrives of that.

federation/codec.py says which arrays are encoded.
"""
