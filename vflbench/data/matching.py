"""Matching rows by their IDs: what private set intersection sends, in bytes.

The messages are those of openmined-psi (ECDH on P-256), as `SerializeToString` writes them: protocol buffers with one
compressed point of 33 bytes for each ID (tests/data/tabular/test_tabular_files.py compares them with the library's).
"""

POINT = 33 + 2  # bytes of an encrypted ID, with its tag and length
DIGEST = 32  # bytes of a SHA-256
PLACE = 8  # bytes of a row's number, int64


def psi_bytes(client: int, server: int) -> tuple[int, int, int]:
    """The bytes of setup (server to client), request (client to server) and response of parties with so many IDs."""
    return server * POINT + 1 + _varint(server * POINT), client * POINT + 2, client * POINT


def _varint(value: int) -> int:
    return max(1, -(-value.bit_length() // 7))
