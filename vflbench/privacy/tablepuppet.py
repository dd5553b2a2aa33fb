"""`privacy=tablepuppet`: label_dp and dp_sgd together, over joins (tables.py)."""

from vflbench.privacy import tables

check_labels, make = tables.check_labels, tables.TablePrivacy
