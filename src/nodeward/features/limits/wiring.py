"""What limits need of the daemon: who performs their goals."""

from nodeward.features.wiring import Wiring
from nodeward.neighbours.cgroups.writer import performers

WIRING = Wiring(performers=performers)
