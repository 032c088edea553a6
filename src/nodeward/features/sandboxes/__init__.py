"""VM sandboxes: where their processes are, what they cost, and whether they fit."""
