"""Decisions for the Pod API."""
