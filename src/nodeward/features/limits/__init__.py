"""What each container and pod may use of a misc resource, and whether the kernel enforces it."""
