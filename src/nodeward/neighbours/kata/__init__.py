"""Files through which Kata learns of volumes and networks that its VMs take over."""
