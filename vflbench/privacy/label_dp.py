"""`privacy=label_dp`: Laplace noise on one-hot labels, over joins (tables.py)."""

from vflbench.privacy import tables

check_labels, make = tables.check_labels, tables.TablePrivacy
