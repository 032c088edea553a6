"""NEIGHBOUR: kubelet: what it has given out, and the resources that it is offered."""
