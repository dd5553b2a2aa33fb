"""Privacy: mechanisms that a data's owner applies before `send`, and their accounting (thin over Opacus)."""
