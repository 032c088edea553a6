"""Dynamic Resource Allocation: our drivers, as kubelet calls them."""
