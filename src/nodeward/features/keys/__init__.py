"""TEE keys: how many there are, which pods hold them, and how many may still be promised."""
