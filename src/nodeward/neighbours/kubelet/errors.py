"""What can be wrong between kubelet and us."""

from nodeward.core.errors import NodewardError


class RequestError(NodewardError):
    """Kubelet, or who plays it, asks for what cannot be: the text names the thing and the rule."""
