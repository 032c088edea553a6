"""NEIGHBOUR: the kernel's cgroup2 tree and its misc controller."""
