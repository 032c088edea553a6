"""A refusal is shown at once, through the whole daemon, though cgroups are read once an hour."""
