"""Cards: what can be said of an option without running it. One module for each module of options, in the same place.

    vflbench/cards/privacy/gdp.py    facts (OPTIONS), keys (Config) and the rules between them (check); a method's also
                                     what it shows to whom (EXPOSES) and what `tune` tries (SEARCH)
    vflbench/privacy/gdp.py          what it does

A card imports neither torch nor NumPy, so `vflbench list` and checks of keys are fast. Modules that end
in `_methods` (facts, keys, rules) and `_messages` (entries of EXPOSES) have what the cards of a family share.
"""
