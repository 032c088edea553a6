"""Where an end of a contract is known to differ, or does not play a case: end and case -> reason.

A case that is played and differs is an expected failure, and fails the suite once it holds (strict), so that no entry
outlives its reason. One that is not played is shown as such. Empty is the aim.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Difference:
    """Why an end does not hold a case; `played`: it is tried all the same."""

    reason: str
    played: bool = True


_MANY = Difference(
    "hundreds of running pods take minutes; the list is cut into messages by the adaptation, which plays this case",
    played=False,
)

_UNMEASURED = Difference("the double's containers use nothing that it could tell of")

_NEGATIVE = Difference("no limit is negative, so `-1` is refused where it is read, and so is `-0`")
_NO_DIGIT = Difference(
    "`Mi` and `.` are 0 to Kubernetes; whoever writes a suffix alone has lost a number, and is told so"
)
_LONG = Difference("no amount is written in more than 64 characters, and what reads one is bounded")
_WRAPS = Difference(
    "Go's `Value()` wraps decimal amounts above 2**63 - 1, so that 9223372036854775808k is 0; ours is the most"
)

EXCEPTIONS: Mapping[tuple[str, str, str], Difference] = {
    ("nri", "containerd-0.8", "300_pods_arrive_whole"): _MANY,
    ("nri", "containerd-0.8", "list_larger_than_a_message_arrives_whole"): _MANY,
    ("nri", "containerd-0.12", "300_pods_arrive_whole"): _MANY,
    ("nri", "containerd-0.12", "list_larger_than_a_message_arrives_whole"): _MANY,
    ("quantity", "apimachinery", "negative"): _NEGATIVE,
    ("quantity", "apimachinery", "suffix_alone"): _NO_DIGIT,
    ("quantity", "apimachinery", "over_64_characters"): _LONG,
    ("quantity", "apimachinery", "value_of_more_than_fits"): _WRAPS,
    ("cri", "double-2.4", "statistics-are-streamed-too-or-unimplemented"): _UNMEASURED,
}
"""By contract, end and case."""
