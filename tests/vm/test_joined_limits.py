"""Limits on a node with a real kubelet: pods by the API, from a Deployment to misc.max, and a daemon that is killed."""

from tests.vm.joined import joined
from tests.vm.joined_limits import CASES

test_joined = joined(CASES, "limits", deployments=True)
