"""Which Kubernetes Events pods and the node get, how often, and in which words."""
