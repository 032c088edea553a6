"""Gives a process the processor time that others leave (SCHED_IDLE), until it falls behind.

On a full machine such a process may not run at all, so whoever makes it one must be able to give it a share again.
sched(7) allows that to CAP_SYS_NICE, or where RLIMIT_NICE allows the niceness that the process has. Must not know what
the process does.
"""

import os
import threading
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
RESTS = 9.0
"""So many times as long as it has worked such a process rests: it has a tenth of a processor at most."""
LEAST_REST_S = 0.004
"""Less is put off until it is so much: to fall asleep and to wake takes time, too."""
SLICE_S = 0.02
"""While it rests it looks so often whether it was given a share meanwhile."""


def can_return(niceness: int) -> bool:
    """Whether a process that gets what others leave may be given a share again, at this niceness. Tried on a thread."""
    returned: list[bool] = []

    def there_and_back() -> None:
        try:
            os.setpriority(os.PRIO_PROCESS, 0, niceness)  # of this thread
            leave_it(0)
            share_it(0)
        except OSError:
            return
        returned.append(True)

    thread = threading.Thread(target=there_and_back)
    thread.start()
    thread.join()
    return bool(returned)


def rested(take: Callable[[int], T]) -> Callable[[int], T]:
    """`take`, which waits for work: before each call this process rests RESTS times as long as its thread has worked
    since its last rest, while it gets what others leave. Where two processors are threads of one core, who works on the
    one slows whoever is on the other."""
    since = time.thread_time()

    def next_one(most: int) -> T:
        nonlocal since
        owed_s = (time.thread_time() - since) * RESTS
        if owed_s >= LEAST_REST_S:
            while owed_s > 0 and os.sched_getscheduler(0) == os.SCHED_IDLE:
                time.sleep(min(owed_s, SLICE_S))
                owed_s -= SLICE_S
            since = time.thread_time()
        return take(most)

    return next_one


def starved_s(pid: int) -> float:
    """Seconds for which the process, of one thread, could have run and was not let, ever; 0 where the kernel does not
    count them (CONFIG_SCHED_INFO; the second number of /proc/PID/schedstat, Documentation/scheduler/sched-stats)."""
    try:
        with open(f"/proc/{pid}/schedstat", "rb") as file:
            return int(file.read(256).split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0


def leave_it(pid: int) -> None:
    """Makes the process take only the CPU time that all others leave. Raises OSError."""
    os.sched_setscheduler(pid, os.SCHED_IDLE, os.sched_param(0))


def share_it(pid: int) -> None:
    """Gives the process the share of its niceness again. Raises OSError."""
    os.sched_setscheduler(pid, os.SCHED_OTHER, os.sched_param(0))
