"""The public proposal for TEE keys, `unhealthy = used - counter`, to be shown beside ours. No daemon goes by it.

It lists as many ids as there are keys and counts what it has handed out. What the kernel says is used beyond that is
taken for somebody else's, and so many ids are unhealthy. A key that was handed out and is not charged yet hides one
that somebody else has: with p of the first and f of the second it sells min(p, f) keys that are not there.
"""

from dataclasses import dataclass


def proposed(capacity: int, used: int, counter: int) -> int:
    """How many ids the proposal calls healthy, including those in use."""
    return capacity - max(0, used - counter)


@dataclass(slots=True)
class Column:
    """How one rule fared: by how many keys it oversold at most, in how many samples, and when first."""

    samples: int = 0
    oversold: int = 0
    most: int = 0
    first_s: float = 0.0
    first: tuple[int, int] = (0, 0)
    """At the first time: keys for sale, and keys that were left."""

    def note(self, for_sale: int, left: int, at_s: float) -> None:
        """Notes how many keys were for sale, and how many were left at most."""
        self.samples += 1
        if for_sale <= left:
            return
        if not self.oversold:
            self.first_s, self.first = at_s, (for_sale, left)
        self.oversold += 1
        self.most = max(self.most, for_sale - left)

    def told(self) -> str:
        """A line of the summary."""
        if not self.oversold:
            return f"oversold 0 keys in {self.samples} samples"
        for_sale, left = self.first
        return (
            f"oversold up to {self.most} key(s) in {self.oversold} of {self.samples} samples, "
            f"first after {self.first_s:.1f} s ({for_sale} for sale, {left} left)"
        )
