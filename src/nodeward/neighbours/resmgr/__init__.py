"""CRI Resource Manager's two local services: configurations come by `v1.Config`, a node's object goes by `v1.Agent`."""
