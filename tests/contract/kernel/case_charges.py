"""Cases of charging: the walk to the root, refusals, events, peaks, orphans, and a capacity that changes."""

import errno

from tests.contract.kernel.vocabulary import UNLIMITED, KernelUnderTest, child, limit, refused, text


def value(k: KernelUnderTest, cgroup: str, file: str, resource: str = "sev") -> int:
    """The number on a resource's line of a misc file."""
    for line in text(k, f"{cgroup}/misc.{file}").splitlines():
        name, _, number = line.partition(" ")
        if name.removesuffix(".max") == resource:
            return int(number)
    raise AssertionError(f"no {resource} in misc.{file} of {cgroup}")


def case_charge_counts_up_to_the_root(k: KernelUnderTest) -> None:
    pod = child(k, "pod")
    c = child(k, "c", pod)
    k.charge(c, "sev", 3)
    k.charge(c, "sev_es", 1)
    assert [value(k, level, "current") for level in (c, pod, k.base, k.mount)] == [3, 3, 3, 3]
    assert [value(k, level, "current", "sev_es") for level in (c, pod, k.base, k.mount)] == [1, 1, 1, 1]
    k.uncharge(c, "sev", 1)
    assert [value(k, level, "current") for level in (c, pod, k.base, k.mount)] == [2, 2, 2, 2]


def case_charge_of_nothing(k: KernelUnderTest) -> None:
    c = child(k, "c")
    limit(k, c, "sev 0")
    k.charge(c, "sev", 0)
    assert value(k, c, "current") == 0
    assert value(k, c, "events") == 0


def case_charge_up_to_the_limit(k: KernelUnderTest) -> None:
    c = child(k, "c")
    limit(k, c, "sev 3")
    k.charge(c, "sev", 3)
    refused(errno.EBUSY, lambda: k.charge(c, "sev", 1))
    assert value(k, c, "current") == 3
    k.uncharge(c, "sev", 1)
    k.charge(c, "sev", 1)


def case_charge_limit_zero_denies(k: KernelUnderTest) -> None:
    c = child(k, "c")
    limit(k, c, "sev 0")
    refused(errno.EBUSY, lambda: k.charge(c, "sev", 1))
    k.charge(c, "sev_es", 1)


def case_charge_parent_limit_holds_for_children(k: KernelUnderTest) -> None:
    pod = child(k, "pod")
    a, b = child(k, "a", pod), child(k, "b", pod)
    limit(k, pod, "sev 4")
    limit(k, a, "sev 3")
    limit(k, b, "sev 3")
    k.charge(a, "sev", 3)
    refused(errno.EBUSY, lambda: k.charge(b, "sev", 2))
    k.charge(b, "sev", 1)
    assert [value(k, level, "current") for level in (a, b, pod)] == [3, 1, 4]


def case_charge_refusal_is_rolled_back(k: KernelUnderTest) -> None:
    pod = child(k, "pod")
    c = child(k, "c", pod)
    limit(k, pod, "sev 1")
    refused(errno.EBUSY, lambda: k.charge(c, "sev", 2))
    assert [value(k, level, "current") for level in (c, pod, k.base, k.mount)] == [0, 0, 0, 0]


def case_charge_beyond_capacity(k: KernelUnderTest) -> None:
    a, b = child(k, "a"), child(k, "b")
    limit(k, a, "sev 1000")
    k.charge(a, "sev", 10)
    refused(errno.EBUSY, lambda: k.charge(b, "sev", 1))
    assert value(k, k.mount, "current") == 10


def case_charge_with_no_capacity(k: KernelUnderTest) -> None:
    c = child(k, "c")
    k.set_capacity("sev", 0)
    refused(errno.EINVAL, lambda: k.charge(c, "sev", 1))
    k.set_capacity("sev", 10)
    assert value(k, c, "events") == 0
    assert value(k, c, "peak") == 0


def case_charge_counts_where_misc_is_on(k: KernelUnderTest) -> None:
    k.files.mkdir(f"{k.base}/c")
    k.charge(f"{k.base}/c", "sev", 2)
    assert value(k, k.base, "current") == 2
    k.files.write(f"{k.base}/cgroup.subtree_control", b"+misc")
    assert value(k, f"{k.base}/c", "current") == 0
    k.uncharge(f"{k.base}/c", "sev", 2)
    assert value(k, k.base, "current") == 0
    assert value(k, f"{k.base}/c", "current") == 0


def case_charge_not_in_a_cgroup_that_hands_down(k: KernelUnderTest) -> None:
    child(k, "c")
    refused(errno.EBUSY, lambda: k.charge(k.base, "sev", 1))
    refused(errno.ENOENT, lambda: k.charge(f"{k.base}/missing", "sev", 1))


def case_limit_below_usage_evicts_nothing(k: KernelUnderTest) -> None:
    c = child(k, "c")
    k.charge(c, "sev", 4)
    limit(k, c, "sev 2")
    assert value(k, c, "current") == 4
    assert value(k, c, "events") == 0
    refused(errno.EBUSY, lambda: k.charge(c, "sev", 1))
    k.uncharge(c, "sev", 3)
    k.charge(c, "sev", 1)


def case_limits_may_be_over_committed(k: KernelUnderTest) -> None:
    a, b = child(k, "a"), child(k, "b")
    limit(k, a, "sev 10")
    limit(k, b, "sev 10")
    k.charge(a, "sev", 5)
    k.charge(b, "sev", 5)


def case_limit_lifted_lets_charge(k: KernelUnderTest) -> None:
    c = child(k, "c")
    limit(k, c, "sev 1")
    refused(errno.EBUSY, lambda: k.charge(c, "sev", 2))
    limit(k, c, "sev max")
    k.charge(c, "sev", 2)


def case_events_at_own_limit(k: KernelUnderTest) -> None:
    pod = child(k, "pod")
    c = child(k, "c", pod)
    limit(k, c, "sev 1")
    refused(errno.EBUSY, lambda: k.charge(c, "sev", 2))
    assert [value(k, level, "events") for level in (c, pod, k.base)] == [1, 1, 1]
    assert [value(k, level, "events.local") for level in (c, pod, k.base)] == [1, 0, 0]
    assert value(k, c, "events", "sev_es") == 0


def case_events_at_the_pods_limit_are_not_the_containers(k: KernelUnderTest) -> None:
    pod = child(k, "pod")
    c = child(k, "c", pod)
    limit(k, pod, "sev 1")
    refused(errno.EBUSY, lambda: k.charge(c, "sev", 2))
    assert [value(k, level, "events") for level in (c, pod, k.base)] == [0, 1, 1]
    assert [value(k, level, "events.local") for level in (c, pod, k.base)] == [0, 1, 0]


def case_events_lowest_level_refuses_first(k: KernelUnderTest) -> None:
    pod = child(k, "pod")
    c = child(k, "c", pod)
    limit(k, pod, "sev 1")
    limit(k, c, "sev 1")
    refused(errno.EBUSY, lambda: k.charge(c, "sev", 2))
    assert [value(k, level, "events.local") for level in (c, pod)] == [1, 0]
    assert value(k, pod, "peak") == 0


def case_events_host_exhausted_shows_nowhere(k: KernelUnderTest) -> None:
    a, b = child(k, "a"), child(k, "b")
    k.charge(a, "sev", 9)
    refused(errno.EBUSY, lambda: k.charge(b, "sev", 2))
    assert [value(k, level, "events") for level in (a, b)] == [0, 0]
    assert [value(k, level, "events.local") for level in (a, b)] == [0, 0]


def case_events_host_exhausted_counts_at_the_first_level_above_capacity(k: KernelUnderTest) -> None:
    a, b = child(k, "a"), child(k, "b")
    k.charge(a, "sev", 9)
    refused(errno.EBUSY, lambda: k.charge(b, "sev", 2))
    assert value(k, k.base, "events.local") == 1


def case_events_one_request_above_capacity(k: KernelUnderTest) -> None:
    c = child(k, "c")
    refused(errno.EBUSY, lambda: k.charge(c, "sev", 11))
    assert value(k, c, "events.local") == 1
    assert value(k, k.base, "events.local") == 0


def case_events_survive_and_add_up(k: KernelUnderTest) -> None:
    c = child(k, "c")
    limit(k, c, "sev 0")
    for _ in range(3):
        refused(errno.EBUSY, lambda: k.charge(c, "sev", 1))
    limit(k, c, "sev max")
    assert value(k, c, "events") == 3


def case_peak_is_kept(k: KernelUnderTest) -> None:
    c = child(k, "c")
    k.charge(c, "sev", 3)
    k.uncharge(c, "sev", 2)
    k.charge(c, "sev", 1)
    assert (value(k, c, "current"), value(k, c, "peak")) == (2, 3)


def case_peak_counts_what_was_refused_above(k: KernelUnderTest) -> None:
    pod = child(k, "pod")
    a, b = child(k, "a", pod), child(k, "b", pod)
    limit(k, pod, "sev 4")
    k.charge(a, "sev", 3)
    refused(errno.EBUSY, lambda: k.charge(b, "sev", 2))
    assert (value(k, b, "current"), value(k, b, "peak")) == (0, 2)
    assert (value(k, pod, "current"), value(k, pod, "peak")) == (3, 3)
    assert value(k, k.base, "peak") == 3


def case_peak_does_not_count_what_was_refused_here(k: KernelUnderTest) -> None:
    c = child(k, "c")
    limit(k, c, "sev 1")
    refused(errno.EBUSY, lambda: k.charge(c, "sev", 4))
    assert value(k, c, "peak") == 0


def case_orphan_charge_stays_with_the_ancestors(k: KernelUnderTest) -> None:
    pod = child(k, "pod")
    c = child(k, "c", pod)
    k.charge(c, "sev", 2)
    k.files.rmdir(c)
    assert [value(k, level, "current") for level in (pod, k.base, k.mount)] == [2, 2, 2]
    k.uncharge(c, "sev", 2)
    assert [value(k, level, "current") for level in (pod, k.base, k.mount)] == [0, 0, 0]


def case_orphan_charge_is_not_inherited_by_name(k: KernelUnderTest) -> None:
    c = child(k, "c")
    k.charge(c, "sev", 2)
    k.files.rmdir(c)
    c = child(k, "c")
    assert value(k, c, "current") == 0
    k.uncharge(c, "sev", 2)
    assert value(k, c, "current") == 0
    assert value(k, k.base, "current") == 0


def case_orphan_of_a_removed_pod(k: KernelUnderTest) -> None:
    pod = child(k, "pod")
    c = child(k, "c", pod)
    k.charge(c, "sev", 2)
    k.files.rmdir(c)
    k.files.rmdir(pod)
    assert value(k, k.base, "current") == 2
    k.uncharge(c, "sev", 2)
    assert value(k, k.base, "current") == 0


def case_charge_stays_when_its_process_moves(k: KernelUnderTest) -> None:
    a, b = child(k, "a"), child(k, "b")
    pid = k.new_process(a)
    k.charge(a, "sev", 2)
    k.files.write(f"{b}/cgroup.procs", str(pid).encode())
    assert (value(k, a, "current"), value(k, b, "current")) == (2, 0)
    k.end_process(pid)


def case_capacity_grows_and_shrinks(k: KernelUnderTest) -> None:
    c = child(k, "c")
    k.charge(c, "sev", 8)
    k.set_capacity("sev", 6)
    assert text(k, f"{k.mount}/misc.capacity") == "sev 6\nsev_es 5\n"
    assert value(k, c, "current") == 8
    refused(errno.EBUSY, lambda: k.charge(c, "sev", 1))
    k.set_capacity("sev", 12)
    k.charge(c, "sev", 4)


def case_capacity_zero_hides_lines(k: KernelUnderTest) -> None:
    c = child(k, "c")
    k.set_capacity("sev", 0)
    assert text(k, f"{k.mount}/misc.capacity") == "sev_es 5\n"
    assert text(k, f"{c}/misc.max") == "sev_es max\n"
    assert text(k, f"{c}/misc.current") == "sev_es 0\n"
    assert text(k, f"{c}/misc.peak") == "sev_es 0\n"
    assert text(k, f"{c}/misc.events") == "sev_es.max 0\n"
    assert text(k, f"{c}/misc.events.local") == "sev_es.max 0\n"


def case_capacity_zero_everywhere_is_empty_files(k: KernelUnderTest) -> None:
    c = child(k, "c")
    k.set_capacity("sev", 0)
    k.set_capacity("sev_es", 0)
    assert text(k, f"{k.mount}/misc.capacity") == ""
    for name in ("max", "current", "peak", "events", "events.local"):
        assert text(k, f"{c}/misc.{name}") == ""


def case_capacity_zero_keeps_what_counts(k: KernelUnderTest) -> None:
    c = child(k, "c")
    limit(k, c, "sev 3")
    k.charge(c, "sev", 2)
    refused(errno.EBUSY, lambda: k.charge(c, "sev", 2))
    k.set_capacity("sev", 0)
    assert text(k, f"{c}/misc.max") == "sev_es max\n"
    assert text(k, f"{c}/misc.current") == "sev 2\nsev_es 0\n"
    assert text(k, f"{c}/misc.peak") == "sev 2\nsev_es 0\n"
    assert text(k, f"{c}/misc.events") == "sev.max 1\nsev_es.max 0\n"
    k.uncharge(c, "sev", 2)
    assert text(k, f"{c}/misc.current") == "sev_es 0\n"


def case_capacity_back_brings_limits_back(k: KernelUnderTest) -> None:
    c = child(k, "c")
    limit(k, c, "sev 3")
    k.set_capacity("sev", 0)
    refused(errno.EINVAL, lambda: limit(k, c, "sev 4"))
    k.set_capacity("sev", 10)
    assert text(k, f"{c}/misc.max") == "sev 3\nsev_es max\n"


def case_new_cgroup_has_no_limit(k: KernelUnderTest) -> None:
    pod = child(k, "pod")
    limit(k, pod, "sev 1")
    assert text(k, f"{child(k, 'c', pod)}/misc.max") == UNLIMITED


def case_underflow_wraps(k: KernelUnderTest) -> None:
    pod = child(k, "pod")
    a, b = child(k, "a", pod), child(k, "b", pod)
    k.charge(b, "sev", 3)
    limit(k, a, "sev 0")
    k.underflow(a, "sev", 1)
    assert value(k, a, "current") == 2**64 - 1
    assert [value(k, level, "current") for level in (pod, k.base)] == [2, 2]
    k.charge(a, "sev", 1)
    assert value(k, a, "current") == 0
    assert value(k, pod, "current") == 3
