"""Domain `ledger`: TEE keys and ids, how many there are, who holds them, what may still be sold."""
