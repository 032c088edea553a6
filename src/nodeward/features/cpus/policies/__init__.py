"""CPU policies: one module each, and one line in `table`."""
