"""What must hold of a simulated history: judged by the kernel double, by what is on its disk, and by plain counting.

Each check returns sentences, none where all is well. They know the plans, never the engine's rules.
"""

import errno
from collections.abc import Sized

from nodeward.core.decision import Target
from nodeward.core.modes import Mode
from nodeward.core.record import RecordError
from nodeward.features.root import State
from nodeward.features.settings import Settings
from nodeward.host import undo
from nodeward.neighbours.formats import misc_files
from nodeward.people.view import node_view
from nodeward.programs.once.replay import replay
from nodeward.programs.once.uninstall import uninstall
from nodeward_sim.doubles.kernel import SimKernel
from tests.unit.simulated.life import RECORD, Life
from tests.unit.simulated.plans import EPC
from tests.unit.simulated.world import ROOT, World


def limit(kernel: SimKernel, path: str) -> int | str | None:
    """The cgroup's limit in bytes, None for `max`; in words why it has none."""
    try:
        data = kernel.read(f"{ROOT}{path}/misc.max", misc_files.MAX_BYTES)
    except OSError as error:
        return errno.errorcode[error.errno or 0]
    return misc_files.parse_limits(data).get(EPC)


def has_misc(kernel: SimKernel, path: str) -> bool:
    return b"misc" in kernel.read(f"{ROOT}{path.rstrip('/')}/cgroup.subtree_control", misc_files.MAX_BYTES).split()


def wanted_limits(world: World) -> dict[str, int | None]:
    """What each cgroup that the daemon has heard of should have in the kernel, from the plans.

    Left out is what nobody can say: a pod whose spec is deleted, and what nothing limits but something once did.
    """
    rule, found = world.settings.limits, dict[str, int | None]()
    for pod in world.pods.values():
        known = world.known(pod)
        if pod.plan.kind.in_api and not known:
            continue  # not in the API server yet, or deleted there: the fallback, or the last known spec
        budget = pod.plan.budget(known, rule)
        if pod.heard and (budget is not None or not pod.touched):
            found[pod.plan.cgroup] = budget
        for live in pod.containers.values():
            promised = pod.plan.promise(live.container.name, known, rule)
            if live.heard and (promised is not None or not live.touched):
                found[live.container.cgroups_path] = promised
    return found


def limits_in_kernel(world: World) -> list[str]:
    """Every wanted limit is in the kernel, and the daemon says so."""
    life = world.life
    if life is None or not life.connected or not world.capacity or world.settings.limits.mode is not Mode.ENFORCE:
        return []
    rows = {row.cgroup: row.state for row in node_view(life.core.state, world.clock.now_ns(), {}).rows}
    wrong = []
    for path, promised in wanted_limits(world).items():
        there = limit(world.kernel, path)
        if there != promised and not (promised is None and isinstance(there, str)):
            wrong.append(f"{path} has {there}, wanted {promised}")
        if promised is not None and rows.get(path) not in ("enforced", "unknown"):
            wrong.append(f"{path} is shown as {rows.get(path)}")
    return wrong


def settled(world: World, life: Life) -> list[str]:
    """Nothing is under way any more.

    But for cgroups whose end nobody told of while the daemon was connecting, and for the controller of pods that want
    nothing of it: those are not repaired.
    """
    idle = [
        Target("subtree", pod.plan.cgroup)
        for pod in world.pods.values()
        if not wanted_limits(world).get(pod.plan.cgroup)
    ]
    waiting = [target for target in life.slots.waiting if target not in idle]
    there = [target for target in waiting if _there(world.kernel, target.where)]
    wrong = [f"not reached: {there}, missed {life.core.state.limits.misses}"] if there else []
    if life.core.state.asks:
        wrong.append(f"{len(life.core.state.asks)} asks are open")
    return wrong


def tables(state: State) -> dict[str, Sized]:
    of_pods = ("specs", "sandboxes", "containers", "by_pod", "sandbox_of", "creating")
    of_limits = ("wanted", "answered", "readings", "repairs_ns", "misses")
    kept = ((state.pods, of_pods), (state.limits, of_limits), (state, ("asks",)))
    return {name: getattr(part, name) for part, names in kept for name in names}


def nothing_left(world: World, life: Life) -> list[str]:
    """After the last pod nothing of any pod is remembered, held open or charged."""
    misses = life.core.state.limits.misses
    pods = {"misses": {path: why for path, why in misses.items() if not _outlives(f"subtree:{path}")}}
    left = tables(life.core.state) | pods
    wrong = [f"{name} still has {table!r:.300}" for name, table in left.items() if table]
    slots = [target for target in life.slots.targets if not _outlives(str(target))]
    if slots:
        wrong.append(f"slots are left: {slots[:3]}")
    if life.reader.open_files:
        wrong.append(f"{life.reader.open_files} descriptors are open")
    if world.kernel.charges():
        wrong.append(f"charges are left: {world.kernel.charges()[:2]}")
    return wrong


def _outlives(target: str) -> bool:
    """Whether a goal's target is the controller of a cgroup that outlives pods."""
    kind, _, path = target.partition(":")
    return kind == "subtree" and "pod" not in path.rsplit("/", 1)[-1].removeprefix("kubepods")


def undo_before(world: World, life: Life, path: str) -> list[str]:
    """Called before the daemon switches misc on in `path`: for what outlives pods it is on the list on disk first."""
    if not _outlives(f"subtree:{path}") or has_misc(world.kernel, path):
        return []
    listed = [change.target for change in undo.read(world.kernel, world.settings.state_dir)]
    if f"subtree:{path}" in listed or f"subtree:{path}" in life.undo.not_restorable:
        return []
    return [f"misc is switched on in {path}, which is not on the undo list"]


def taken_back(kernel: SimKernel, settings: Settings) -> list[str]:
    listed = [change.target.split(":", 1) for change in undo.read(kernel, settings.state_dir)]
    found = uninstall(settings, kernel)
    on = [path for kind, path in listed if kind == "subtree" and _there(kernel, path) and has_misc(kernel, path)]
    left = [below for kind, path in listed if kind == "limits" for below in _limited(kernel, path)]
    return [
        *(f"uninstall failed: {why}" for why in found.failed),
        *(f"misc is still on in {path}" for path in on),
        *(f"a limit is still there in {path}" for path in left),
    ]


def _limited(kernel: SimKernel, path: str) -> list[str]:
    """The cgroups at or below this one that have a limit."""
    if not _there(kernel, path):
        return []
    names = kernel.listdir(ROOT + path)
    found = [path] if "misc.max" in names and b"max" not in kernel.read(f"{ROOT}{path}/misc.max", 4096) else []
    below = [f"{path}/{name}" for name in names if kernel.stat(f"{ROOT}{path}/{name}").is_dir]
    return found + [one for child in below for one in _limited(kernel, child)]


def _there(kernel: SimKernel, path: str) -> bool:
    try:
        kernel.stat(ROOT + path)
    except FileNotFoundError:
        return False
    return True


def replays(kernel: SimKernel, events: int | None) -> list[str]:
    """The record decides again what it says; `events` were decided, where all of them must be in it."""
    try:
        data = kernel.read(RECORD, 1 << 28)
    except FileNotFoundError:
        return []
    try:
        found = replay(data.splitlines(keepends=True))
    except RecordError as error:
        return [f"the record cannot be read: {error}"]
    if found.difference:
        return [f"replay differs: {found.difference[:2000]}"]
    if events is not None and found.events != events:
        return [f"{events} events were decided, {found.events} are in the record"]
    return []
