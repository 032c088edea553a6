"""Edge to kubelet: what it has handed out."""
