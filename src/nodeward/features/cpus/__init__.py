"""The domain `cpus`: which CPUs each container may run on, by a policy."""
