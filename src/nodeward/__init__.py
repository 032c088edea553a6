"""Nodeward keeps a Kubernetes node honest about scarce hardware. Imports nothing, so that every program starts fast."""

__version__ = "0.1.0"
