"""Events, decisions and the function between them; pure. Frozen, slotted dataclasses on the standard library alone."""
