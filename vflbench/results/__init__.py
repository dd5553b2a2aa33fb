"""The run folder: `folder` writes it, `identity` names it, `reader` reads it, `sweep` makes the table of a sweep.

Never imports torch.
"""
