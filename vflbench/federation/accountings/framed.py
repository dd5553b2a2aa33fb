"""As `strict`, and each message costs a header too: what a transport sends beside a payload (`network.header_bytes`).

Times are the engine's, without headers.
"""

from vflbench.federation.accountings.strict import price as price
from vflbench.types import NetworkConfig


def header(network: NetworkConfig) -> int:
    """The bytes of a message beside its payload; `scripts/framing.py` has measured the default."""
    return network.header_bytes
