"""The domain `pods`: what is known of each pod and container, by source."""
