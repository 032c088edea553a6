"""What the owner of a pod should hear of by a Kubernetes Event: which, how often, and in what words."""
