"""The papers' figures and tables.

`definition` and `jobs` say which runs they need, `measured` what those came to, `claims` whether the papers' claims
hold. `figures` and `page` draw and write it all.
"""
