"""Cases that one end of NRI does not play, each with its reason."""

from __future__ import annotations

from collections.abc import Mapping

_MANY = "hundreds of running pods take minutes; the list is cut into messages by the adaptation, which plays this case"

EXCEPTIONS: Mapping[tuple[str, str], str] = {
    ("containerd-0.12", "300_pods_arrive_whole"): _MANY,
    ("containerd-0.12", "list_larger_than_a_message_arrives_whole"): _MANY,
}
"""By end and case."""
