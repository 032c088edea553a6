"""Given what the kernel says of its mounts and controllers, then each line is read, and none that is too long."""

from nodeward.wire import cgroup_mounts
from nodeward.wire.cgroup_mounts import MAX_LINE, Mount

LINE = b"36 25 0:31 / /sys/fs/cgroup/a\\040b rw,nosuid shared:9 - cgroup cgroup rw,misc\n"
READ = Mount("/sys/fs/cgroup/a b", "cgroup", ("rw", "nosuid"), ("rw", "misc"))


def test_lines_that_are_no_mount_or_too_long_are_left_out_and_the_others_read() -> None:
    whole = LINE.replace(b"/ /", b"/" + b"r" * (MAX_LINE - len(LINE)) + b" /", 1)
    longer = whole.replace(b"/r", b"/rr", 1)

    assert len(whole) == MAX_LINE
    assert list(cgroup_mounts.mounts(b"no mount\n" + longer + whole + LINE)) == [READ, READ]


def test_a_controller_is_known_unless_its_line_is_too_long_or_it_is_off() -> None:
    rows = b"#subsys_name\thierarchy\nmisc\t0\t1\t1\npids\t0\t1\t0\nrdma\t0\t1\t" + b"1" * MAX_LINE
    assert [name for name in ("misc", "pids", "rdma") if cgroup_mounts.knows(rows, name)] == ["misc"]
