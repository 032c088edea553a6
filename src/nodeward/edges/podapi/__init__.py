"""The Pod API's socket."""
