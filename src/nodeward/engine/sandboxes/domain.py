"""The domain `sandboxes`: VM sandboxes on the host, what they cost and whether they fit."""

from nodeward.engine.domain import Domain
from nodeward.engine.sandboxes.step import KIND, step

SANDBOXES = Domain("sandboxes", step, kinds=(KIND,))
