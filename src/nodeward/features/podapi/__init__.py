"""The Pod API: what the node knows of pods, for VM runtimes and for people."""
