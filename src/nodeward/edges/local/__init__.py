"""NEIGHBOUR: the operators, on the daemon's local socket."""
