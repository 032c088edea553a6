"""VALUES: what the rest of the house talks about. Frozen, slotted dataclasses on the standard library alone."""
