"""The settings of `sandboxes`."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from nodeward.core.vms import Profile
from nodeward.features.limits.settings import Mode


@dataclass(frozen=True, slots=True)
class SandboxesSettings:
    """VM sandboxes (Kata). `mode`: off; observe, which looks and says; enforce, which besides sets the limit of a pod
    where nobody has set it (a CRI runtime without kubelet), and moves no process. `period_ms`: how often they are read.
    `profiles`: by whose rules a runtime handler places processes, where that is not recognised: document, kata-go or
    kata-rs. `tight_percent`: less of the limit left than this is called tight. `samples`: so many are needed before an
    overhead is recommended."""

    mode: Mode = Mode.OFF
    period_ms: int = 2000
    profiles: Mapping[str, Profile] = field(default_factory=dict)
    tight_percent: int = 5
    samples: int = 300
