"""`privacy=label_dp`: Laplace noise on one-hot labels, over joins (tables.py)."""

from vflbench.privacy import keys, tables

check, check_labels, make = keys.check_budget, tables.check_labels, tables.TablePrivacy
