"""VM sandboxes on the host: their processes, cgroups, configurations and metrics, as values. Reads only."""
