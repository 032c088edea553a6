"""Which pods must not start yet, and why."""
