"""Nodeward: a node agent that enforces limits on SGX enclave memory, counts TEE keys and places CPUs. Imports nothing,
so that every program starts fast."""

__version__ = "0.1.0"
