"""Limits on a node with a real kubelet: pods by the API, from a Deployment to misc.max, and a daemon that is killed."""

import pytest

from tests.vm.joined import joined
from tests.vm.joined_limits import CASES, MORE

test_joined = joined(CASES, "limits", deployments=True)
test_more = pytest.mark.nightly(joined(MORE, "limits-more", deployments=True))
