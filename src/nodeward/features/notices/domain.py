"""The domain `notices`: which Kubernetes Events pods and the node get. It answers nobody: no fault of its refuses."""

from nodeward.core.feature import Domain
from nodeward.features.notices.step import step

NOTICES = Domain("notices", step)
