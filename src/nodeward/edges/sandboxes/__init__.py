"""VM sandboxes as processes, cgroup files and configurations show them."""
