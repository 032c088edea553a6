"""What a feature has promised by claim (Dynamic Resource Allocation), and how news of its driver change that."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from nodeward.core.claims import Claim, ClaimUid, Promised
from nodeward.core.events import ClaimsRecalled, DriverTold, Unprepared
from nodeward.core.tables import without


@dataclass(frozen=True, slots=True)
class ByClaim:
    """The prepared claims; whether it is known what was prepared before the daemon started, and why not; the devices
    that stand as goals, by driver; and how our driver stands."""

    claims: Mapping[ClaimUid, Promised] = field(default_factory=dict)
    recalled: bool = False
    fault: str = ""
    slices: Mapping[str, str] = field(default_factory=dict)
    driver: DriverTold | None = None

    def after(
        self, event: Unprepared | ClaimsRecalled | DriverTold, promised: Callable[[Claim], Promised | None]
    ) -> "ByClaim":
        """The same after the news. `promised`: what a claim is given that kubelet has prepared and no record has; None
        where that cannot be read."""
        match event:
            case Unprepared():
                claims = without(self.claims, (event.claim,))
                return self if claims is self.claims else replace(self, claims=claims)
            case DriverTold():
                return replace(self, driver=event)
            case ClaimsRecalled() if event.fault:
                return replace(self, fault=event.fault)
            case ClaimsRecalled():
                adopted = [one for claim in event.adopted if (one := promised(claim)) is not None]
                claims = {one.uid: one for one in (*event.claims, *adopted)}
                return replace(self, claims={**claims, **self.claims}, recalled=True, fault="")
