"""Processor time for a process that is to hold up nobody: what all others leave (SCHED_IDLE), until it falls behind.

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
MOST_REST_S = 0.02


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
    """`take`, which waits for work: before each call this process rests for as long as its thread has worked since the
    one before, MOST_REST_S at most, while it gets what others leave. Where two processors are threads of one core, who
    works all the time on the one slows whoever is on the other."""
    since = time.thread_time()

    def next_one(most: int) -> T:
        nonlocal since
        if os.sched_getscheduler(0) == os.SCHED_IDLE:
            time.sleep(min(time.thread_time() - since, MOST_REST_S))
        found = take(most)
        since = time.thread_time()
        return found

    return next_one


def leave_it(pid: int) -> None:
    """From now on the process gets what all others leave. Raises OSError."""
    os.sched_setscheduler(pid, os.SCHED_IDLE, os.sched_param(0))


def share_it(pid: int) -> None:
    """From now on it gets the share that its niceness says. Raises OSError."""
    os.sched_setscheduler(pid, os.SCHED_OTHER, os.sched_param(0))
