"""DECISIONS. Pure functions of (state, event), on the model alone: no clock, no file, no set, no await."""
