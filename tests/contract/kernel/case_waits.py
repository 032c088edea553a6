"""Cases of waiting for a refusal: the kernel wakes who polls `misc.events` or `misc.events.local`, and nobody else."""

import errno

from tests.contract.kernel.vocabulary import KernelUnderTest, child, limit, refused


def changed(k: KernelUnderTest, handles: list[int], within_s: float) -> set[int]:
    """What `wait` gives for these handles: all that the kernel tells soon, since it holds back what comes fast."""
    found: set[int] = set()
    for _ in range(4):
        found |= set(k.files.wait([handle for handle in handles if handle not in found], within_s))
        if len(found) == len(handles):
            break
    return found


def watched(k: KernelUnderTest, *paths: str) -> list[int]:
    handles = [k.files.open(path) for path in paths]
    for handle in handles:
        k.files.pread(handle, 4096)
    return handles


def case_wait_tells_a_refusal_at_its_level_and_above(k: KernelUnderTest) -> None:
    pod = child(k, "pod")
    c = child(k, "c", pod)
    limit(k, c, "sev 1")
    at_c, at_pod, at_base, local, above = handles = watched(
        k,
        f"{c}/misc.events",
        f"{pod}/misc.events",
        f"{k.base}/misc.events",
        f"{c}/misc.events.local",
        f"{pod}/misc.events.local",
    )
    assert changed(k, handles, 0.05) == set()
    refused(errno.EBUSY, lambda: k.charge(c, "sev", 2))
    assert changed(k, [at_c, at_pod, at_base, local], 5.0) == {at_c, at_pod, at_base, local}
    assert changed(k, [above], 0.05) == set()
    for handle in handles:
        k.files.close(handle)


def case_wait_tells_until_it_is_read(k: KernelUnderTest) -> None:
    c = child(k, "c")
    limit(k, c, "sev 1")
    (handle,) = watched(k, f"{c}/misc.events")
    for count in (1, 2):
        refused(errno.EBUSY, lambda: k.charge(c, "sev", 2))
        assert changed(k, [handle], 5.0) == {handle}
        assert changed(k, [handle], 5.0) == {handle}
        assert k.files.pread(handle, 4096) == f"sev.max {count}\nsev_es.max 0\n".encode()
        assert changed(k, [handle], 0.05) == set()
    k.files.close(handle)


def case_wait_tells_each_handle_for_itself(k: KernelUnderTest) -> None:
    c = child(k, "c")
    limit(k, c, "sev 1")
    first, second = watched(k, f"{c}/misc.events", f"{c}/misc.events")
    refused(errno.EBUSY, lambda: k.charge(c, "sev", 2))
    assert changed(k, [first], 5.0) == {first}
    k.files.pread(first, 4096)
    assert changed(k, [first], 0.05) == set()
    assert changed(k, [second], 5.0) == {second}
    for handle in (first, second):
        k.files.close(handle)


def case_wait_tells_nothing_of_charges_and_limits(k: KernelUnderTest) -> None:
    c = child(k, "c")
    handles = watched(k, *(f"{c}/misc.{name}" for name in ("current", "peak", "max", "events", "events.local")))
    k.charge(c, "sev", 2)
    limit(k, c, "sev 5")
    assert changed(k, handles, 0.05) == set()
    for handle in handles:
        k.files.close(handle)


def case_wait_counts_what_was_never_read_as_changed(k: KernelUnderTest) -> None:
    handle = k.files.open(f"{child(k, 'c')}/misc.events")
    assert changed(k, [handle], 5.0) == {handle}
    k.files.close(handle)


def case_wait_counts_what_is_gone_as_changed(k: KernelUnderTest) -> None:
    c = child(k, "c")
    (handle,) = watched(k, f"{c}/misc.events")
    assert changed(k, [handle], 0.05) == set()
    k.files.rmdir(c)
    assert changed(k, [handle], 5.0) == {handle}
    refused(errno.ENODEV, lambda: k.files.pread(handle, 4096))
    k.files.close(handle)


def case_wait_of_a_controller_turned_off(k: KernelUnderTest) -> None:
    (handle,) = watched(k, f"{child(k, 'c')}/misc.events")
    k.files.write(f"{k.base}/cgroup.subtree_control", b"-misc")
    assert changed(k, [handle], 5.0) == {handle}
    k.files.close(handle)


def case_wait_for_nothing(k: KernelUnderTest) -> None:
    assert k.files.wait([], 0.0) == []
