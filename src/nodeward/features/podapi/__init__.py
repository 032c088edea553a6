"""Decisions of the Pod API that are no domain's: nothing here enters a record."""
