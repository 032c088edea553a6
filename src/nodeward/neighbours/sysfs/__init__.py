"""NEIGHBOUR: /sys/devices, where the kernel describes the machine."""
