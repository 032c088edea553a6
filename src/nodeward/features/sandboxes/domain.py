"""The domain `sandboxes`: VM sandboxes on the host, what they cost and whether they fit."""

from nodeward.core.feature import Domain
from nodeward.features.sandboxes.pod_limits import KIND
from nodeward.features.sandboxes.step import step

SANDBOXES = Domain("sandboxes", step, kinds=(KIND,))
