"""The metrics of CPUs: the machine's, the pools, and how many containers stand how."""

from collections import Counter
from collections.abc import Iterator

from nodeward.core import cpuset
from nodeward.core.ports import Pace
from nodeward.core.shown import Clean, Family, Series, counter, gauge
from nodeward.features.cpus.rows import CpusView

POLICY = gauge("nodeward_cpus_policy_info", ("policy", "mode", "driver"), "1, with the policy in force.")
ONLINE = gauge("nodeward_cpus_online", (), "CPUs of the machine that are online.")
EXCLUSIVE = gauge("nodeward_cpus_exclusive", (), "CPUs that one container has for its own.")
POOL = gauge("nodeward_cpus_pool", ("pool",), "CPUs of the pool, shared by containers.")
LENT = gauge("nodeward_cpus_pool_lent", ("pool",), "Idle CPUs that containers of the pool may also use.")
POOL_REQUESTED = gauge("nodeward_cpus_pool_requested", ("pool",), "CPUs that containers request of the pool.")
NUMA = gauge("nodeward_cpus_numa", ("numa", "use"), "CPUs of the NUMA node, by use.")
NUMA_REQUESTED = gauge(
    "nodeward_cpus_numa_requested",
    ("numa",),
    "CPUs requested on the NUMA node; a pool's are spread evenly over its CPUs.",
)
CONTAINERS = gauge("nodeward_cpus_containers", ("kind",), "Containers, by the kind of CPUs they have.")
STATE = gauge("nodeward_cpus_containers_state", ("state",), "Containers, by whether the kernel has the wanted CPUs.")
DRIFTS = counter("nodeward_cpus_drifts_total", (), "CPU sets that another process changed and Nodeward restored.")
LATE = counter("nodeward_cpus_late_starts_total", (), "Programs started or refused while others were on their CPUs.")
REFUSED = gauge("nodeward_cpus_settings_refused", (), "1 while newer settings of the policy do not fit, else 0.")
FAMILIES = tuple(value for value in list(globals().values()) if isinstance(value, Family))


def series(cpus: CpusView, clean: Clean, paced: Pace) -> Iterator[Series]:
    """Each family with its series."""
    told = {"policy": clean(cpus.policy), "mode": cpus.mode, "driver": cpus.driver}
    yield POLICY, [(told, 1)]
    yield ONLINE, [({}, len(cpus.cpus))]
    yield EXCLUSIVE, [({}, sum(bool(row.owner) for row in paced(cpus.cpus, 64)))]
    pools = [({"pool": clean(pool.name)}, cpuset.parse(pool.cpus).bit_count()) for pool in cpus.pools]
    yield POOL, pools
    lent = [({"pool": clean(pool.name)}, cpuset.parse(pool.lent).bit_count()) for pool in cpus.pools]
    yield LENT, lent
    yield from _requested(cpus, clean, paced)
    kinds = Counter(row.kind for row in paced(cpus.holders, 64))
    yield CONTAINERS, [({"kind": kind}, count) for kind, count in kinds.items()]
    states = Counter(row.state for row in paced(cpus.holders, 64))
    yield STATE, [({"state": state}, count) for state, count in states.items()]
    yield DRIFTS, [({}, cpus.drifts)]
    yield LATE, [({}, cpus.late)]
    yield REFUSED, [({}, bool(cpus.refused))]


def _requested(cpus: CpusView, clean: Clean, paced: Pace) -> Iterator[Series]:
    """What is requested of each pool; and of each NUMA node the CPUs by use, and what is requested there."""
    of_pools: Counter[str] = Counter()
    for row in paced(cpus.holders, 64):
        if row.pool:
            of_pools[row.pool] += max(row.request_m - 1000 * cpuset.parse(row.own).bit_count(), 0)
    each = [({"pool": clean(pool.name)}, of_pools[pool.name] / 1000) for pool in cpus.pools]
    yield POOL_REQUESTED, each
    sizes = {pool.name: cpuset.parse(pool.cpus).bit_count() for pool in cpus.pools}
    uses: dict[int, Counter[str]] = {}
    requested: dict[int, float] = {}
    for cpu in paced(cpus.cpus, 64):
        shared = "reserved" if cpu.pools == ("reserved",) else "shared" if cpu.pools else "idle"
        uses.setdefault(cpu.node, Counter())["exclusive" if cpu.owner else shared] += 1
        of_cpu = sum(of_pools[name] / sizes[name] for name in cpu.pools) / 1000
        requested[cpu.node] = requested.get(cpu.node, 0) + bool(cpu.owner) + of_cpu
    kinds = ("exclusive", "shared", "reserved", "idle")
    counted = [({"numa": str(node), "use": kind}, of[kind]) for node, of in uses.items() for kind in kinds]
    yield NUMA, counted
    yield NUMA_REQUESTED, [({"numa": str(node)}, round(n, 3)) for node, n in requested.items()]
