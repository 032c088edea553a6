"""The domain `limits`: what each container and pod may use of a misc resource, and whether the kernel says so too."""
