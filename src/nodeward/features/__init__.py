"""A folder for each thing that Nodeward does: its settings, state, decisions, rows, words and wiring.

Only `wiring`, `effects` and `door` do I/O; everything else is pure.
"""
