"""Cards of codecs."""
