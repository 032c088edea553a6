"""Which CPUs each container may run on, by a policy."""
