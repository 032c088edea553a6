"""What is known of each pod and container, by source."""
