"""What all tiers share."""

from hypothesis import settings

# A property says nothing of time: on a busy machine the same example takes a thousand times as long.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")
