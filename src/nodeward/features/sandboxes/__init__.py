"""The domain `sandboxes`: virtual machines on the host, where their processes are and what they cost."""
