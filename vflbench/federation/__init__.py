"""The federation: parties, links, topologies, ledger, accounting, codecs, and the engines that run them."""
