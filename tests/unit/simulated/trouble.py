"""What goes wrong in a simulated history, one thing after the other: others who write, take and switch off, kills, a
machine that sleeps, files that fail, slow lanes.
"""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from nodeward_sim.doubles.kernel import SimKernel
from tests.unit.simulated.plans import EPC, PAGE
from tests.unit.simulated.virtual import Pace
from tests.unit.simulated.world import ROOT, World

CAPACITY = 1 << 40
SECOND_NS = 1_000_000_000
REPAIRS_AGAIN_NS = 301 * SECOND_NS


@dataclass(slots=True)
class Weather:
    """What goes wrong by itself at present, as shares of the calls of the host's files."""

    fails: float = 0.0
    vanishes: float = 0.0
    disk_full: bool = False
    read_only: bool = False
    stop_in: int = 0
    """The daemon is killed at so many calls from now; 0 for not."""


class Trouble:
    def __init__(self, world: World, random: Random, *, wall_jumps: bool) -> None:
        self.world, self.random, self._wall_jumps = world, random, wall_jumps
        self.weather, self.pace = Weather(), Pace()

    def ends(self) -> None:
        self.weather, self.pace.most_s, self.pace.hangs = Weather(), 0.004, 0.0
        self.set_capacity(CAPACITY)
        self.world.set_api(True)
        self.world.clock.slept_ns += REPAIRS_AGAIN_NS

    def disturb(self) -> None:
        harm: tuple[tuple[int, Callable[[], None]], ...] = (
            (4, self._drift),
            (2, self._switch_off),
            (2, self._kill),
            (2, self._kill_at_a_call),
            (2, lambda: self.world.set_api(not self.world.api_up)),
            (1, self._drop_connection),
            (2, self._set_wall_clock),
            (1, self._sleep),
            (1, self._capacity),
            (3, self._weather),
            (2, self._slow_lanes),
            (3, self._charge),
        )
        total = self.random.randrange(sum(weight for weight, _ in harm))
        for weight, act in harm:
            total -= weight
            if total < 0:
                act()
                return

    def _drift(self) -> None:
        lives = self.world.running()
        places = [live.container.cgroups_path for live in lives] + [pod.plan.cgroup for pod in self.world.pods.values()]
        if not places:
            return
        path, text = self.random.choice(places), self.random.choice(("max", "0", "4096", "99999999"))
        for pod in self.world.pods.values():
            pod.touched = pod.touched or pod.plan.cgroup == path
        for live in lives:
            live.touched = live.touched or live.container.cgroups_path == path
        self.world.reached.pop(path, None)
        self.world.say(f"somebody writes {text} to {path}")
        try:
            self.world.kernel.write(f"{ROOT}{path}/misc.max", f"{EPC} {text}".encode())
        except OSError:
            return

    def _switch_off(self) -> None:
        path = self.random.choice(("", "/kubepods", "/kubepods/burstable", "/kubepods.slice"))
        self.world.say(f"somebody switches misc off below {path or '/'}")
        self.world.reached.clear()
        for pod in self.world.pods.values():
            _switched_off(self.world.kernel, pod.plan.cgroup)
        try:
            self.world.kernel.write(f"{ROOT}{path}/cgroup.subtree_control", b"-misc")
        except OSError:
            return

    def _kill(self) -> None:
        if self.world.life is not None:
            self.world.life.kill()

    def _kill_at_a_call(self) -> None:
        self.weather.stop_in = self.random.randint(1, 60)

    def _drop_connection(self) -> None:
        if self.world.life is not None:
            self.world.say("the runtime closes the connection")
            self.world.life.connected = False
            self.world.life.dropped.set()

    def _set_wall_clock(self) -> None:
        by = self.random.randint(-400 * 86400, 400 * 86400) * SECOND_NS
        if self._wall_jumps:
            self.world.clock.wall_off_ns += by

    def _sleep(self) -> None:
        """The machine is suspended: boot time goes on, timers do not."""
        by = self.random.choice((1, 20, 150, 4000, 90000)) * SECOND_NS
        self.world.say(f"the machine sleeps {by // SECOND_NS} s")
        self.world.clock.slept_ns += by

    def _capacity(self) -> None:
        self.set_capacity(0 if self.world.capacity else CAPACITY)

    def set_capacity(self, amount: int) -> None:
        if bool(amount) is not self.world.capacity:
            self.world.say(f"the driver gives {amount}")
            self.world.kernel.set_capacity(EPC, amount)
            self.world.capacity = bool(amount)
            for live in self.world.running():
                live.touched = True  # without capacity a limit cannot be seen, nor taken back

    def _weather(self) -> None:
        random = self.random
        self.weather = Weather(
            fails=random.choice((0.0, 0.0, 0.02, 0.2)),
            vanishes=random.choice((0.0, 0.0, 0.005)),
            disk_full=random.random() < 0.15,
            read_only=random.random() < 0.1,
            stop_in=self.weather.stop_in,
        )
        self.world.say(f"weather: {self.weather}")

    def _slow_lanes(self) -> None:
        self.pace.most_s = self.random.choice((0.004, 0.004, 0.05, 1.0))
        self.pace.hangs = self.random.choice((0.0, 0.0, 0.02, 0.2))

    def _charge(self) -> None:
        lives = self.world.running()
        if lives:
            self.world.charge(self.random.choice(lives), self.random.randint(1, 12) * PAGE)


def _switched_off(kernel: SimKernel, path: str) -> None:
    """Misc off from the pod's cgroup upwards, as far as the kernel lets anybody."""
    while path:
        try:
            kernel.write(f"{ROOT}{path}/cgroup.subtree_control", b"-misc")
        except OSError:
            return
        path = path.rpartition("/")[0]
