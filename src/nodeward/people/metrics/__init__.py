"""NEIGHBOUR: Prometheus, which reads the node at `/metrics`."""
