"""What it costs to watch the key counters of a node with many pods: processor time and calls of files.

Over real cgroups that this makes and removes again (bench/sampler.py, also for what plays the misc files where this
machine has none). A *look* is the node's own counter alone, ten times a second; a *sample* is node, pods, node, pods,
at least every two seconds.
"""

import time

from bench import tree
from bench.measure import median
from bench.sampler import LikeFiles, has_misc, own_cgroups
from nodeward.core.workload import PodUid
from nodeward.host.hostfs import OsFiles
from nodeward.neighbours.cgroups.hierarchy import Tree
from nodeward.neighbours.cgroups.keys import LOOK_S, SWEEP_S, KeyReader
from tests.faults import FaultyFiles

NODE = tree.Shape(pods=500, per_pod=1)
ROUNDS = 25
KEYS = ("tdx", "sev_es")


def run() -> None:
    """Milliseconds of a look and a sample, percent of a core, calls."""
    with own_cgroups(NODE) as (root, paths):
        homes = {PodUid(path): path for path in paths if path.rpartition("/")[2].startswith("pod")}
        files = OsFiles() if has_misc(root) else LikeFiles()
        counter = FaultyFiles(files)
        counted, reader = KeyReader(counter, Tree(counter, root)), KeyReader(files, Tree(files, root))
        counted.look(KEYS, homes, True, 0)
        before = counter.total
        counted.look(KEYS, homes, True, 0)
        calls = counter.total - before
        seen = reader.look(KEYS, homes, True, 0)
        samples = [_took_ms(reader, homes, due=True) for _ in range(ROUNDS)]
        looks = [_took_ms(reader, homes, due=False) for _ in range(ROUNDS)]
        for one in (counted, reader):
            one.close()
    what = "misc files" if has_misc(root) else "files like misc's (no misc controller here)"
    spent = median(samples) / SWEEP_S + median(looks) / LOOK_S
    unread = len(seen.unread) if seen is not None else len(homes)
    print(f"keys, {len(homes)} pods ({unread} unread), on {what} of real cgroups")
    print(f"  a look                     {median(looks):6.3f} ms of a core")
    print(f"  a sample                   {median(samples):6.2f} ms of a core, {calls} calls of files")
    a_second = calls / SWEEP_S + 1 / LOOK_S
    print(f"  a second of an idle node   {spent:6.2f} ms of a core = {spent / 10:.2f} %, {a_second:.0f} calls   goal 1")


def _took_ms(reader: KeyReader, homes: dict[PodUid, str], *, due: bool) -> float:
    time.sleep(0.05)  # as between two looks of a daemon, somebody else has had the processor
    began = time.thread_time_ns()
    reader.look(KEYS, homes, due, 0)
    return (time.thread_time_ns() - began) / 1e6
