"""Processor time for a process that is to hold up nobody: what all others leave (SCHED_IDLE), until it falls behind.

On a full machine such a process may not run at all, so whoever makes it one must be able to give it a share again.
sched(7) allows that to CAP_SYS_NICE, or where RLIMIT_NICE allows the niceness that the process has. Must not know what
the process does.
"""

import os
import threading


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


def leave_it(pid: int) -> None:
    """From now on the process gets what all others leave. Raises OSError."""
    os.sched_setscheduler(pid, os.SCHED_IDLE, os.sched_param(0))


def share_it(pid: int) -> None:
    """From now on it gets the share that its niceness says. Raises OSError."""
    os.sched_setscheduler(pid, os.SCHED_OTHER, os.sched_param(0))
