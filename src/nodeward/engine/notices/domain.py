"""The domain `notices`: which Kubernetes Events pods and the node get. It answers nobody: no fault of its refuses."""

from nodeward.engine.domain import Domain
from nodeward.engine.notices.step import step

NOTICES = Domain("notices", step)
