"""What the kernel tells of the machine in /sys/devices."""
