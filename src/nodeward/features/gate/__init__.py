"""The domain `gate`: which pods do not start yet, and why."""
