"""The guest harness itself: a program's status comes back, nothing is written to the host, a deadline ends a guest."""

import os
import sys
from pathlib import Path

import pytest

from tests.vm import guest
from tests.vm.initramfs import initramfs

CAPACITY = {"sev": 3, "sev_es": 2}


def test_status_comes_back_and_the_host_is_left_alone(tmp_path: Path) -> None:
    machine = guest.needed()
    script, trace = tmp_path / "inside.py", tmp_path / "trace"
    script.write_text(
        "import os, sys\n"
        "print(open('/sys/fs/cgroup/misc.capacity').read(), os.uname().release)\n"
        f"open({str(trace)!r}, 'w').write('written inside')\n"
        f"print(open({str(trace)!r}).read())\n"
        "sys.exit(7)\n"
    )
    run = guest.boot(machine, (sys.executable, str(script)), CAPACITY)
    assert run.status == 7, run.output
    assert "sev 3\nsev_es 2\n" in run.output
    assert machine.release in run.output
    assert "written inside" in run.output
    assert not trace.exists()


def test_resources_have_the_names_that_are_asked_for(tmp_path: Path) -> None:
    """Also where something is written: the kernel's own name is unknown then, and its rules are as they were."""
    machine = guest.needed()
    script = tmp_path / "inside.py"
    script.write_text(
        "import os\n"
        "print()\n"
        "here = '/sys/fs/cgroup/named/'\n"
        "os.write(os.open('/sys/fs/cgroup/cgroup.subtree_control', os.O_WRONLY), b'+misc')\n"
        "os.mkdir(here)\n"
        "for text in (b'sgx_epc 4096', b'sev 3', b'sgx_epc 1\\nsev_es 1', b'sev_es max'):\n"
        "    try:\n"
        "        os.write(os.open(here + 'misc.max', os.O_WRONLY), text)\n"
        "    except OSError as error:\n"
        "        print('refused', text, error.errno)\n"
        "for name in ('misc.max', 'misc.current', 'misc.events'):\n"
        "    print(name, open(here + name).read().split())\n"
        "print(open('/sys/fs/cgroup/misc.capacity').read())\n"
    )
    run = guest.boot(machine, (sys.executable, str(script)), {"sgx_epc": 8192, "sev_es": 2})
    assert run.status == 0, run.output
    said = run.output.splitlines()
    assert [line for line in said if "refused" in line] == [
        r"refused b'sev 3' 22",
        r"refused b'sgx_epc 1\nsev_es 1' 22",
    ]
    assert "misc.max ['sgx_epc', '4096', 'sev_es', 'max']" in said
    assert "misc.current ['sgx_epc', '0', 'sev_es', '0']" in said
    assert "misc.events ['sgx_epc.max', '0', 'sev_es.max', '0']" in said
    assert "sgx_epc 8192\nsev_es 2\n" in run.output


def test_what_tests_have_the_root_pass_on_is_taken_back_after_the_last_of_them(tmp_path: Path) -> None:
    """Given two tests at once, as `tests.peers` makes cgroups for a kubelet; what a cgroup passes on further stays."""
    machine = guest.needed()
    script = tmp_path / "inside.py"
    script.write_text(
        "import os, sys\n"
        "from pathlib import Path\n"
        "sys.path.insert(0, os.getcwd())\n"
        "from tests.peers.cgroups import CGROUP_ROOT, controllers_as_before, make_cgroup, passed_on\n"
        "print()\n"
        "def now(when):\n"
        "    print(when, sorted(passed_on()))\n"
        "(CGROUP_ROOT / 'cgroup.subtree_control').write_text('+pids')\n"
        "now('before')\n"
        "first, second = controllers_as_before(), controllers_as_before()\n"
        "first.__enter__()\n"
        "make_cgroup('/one', ('cpu', 'pids', 'no-such-one'))\n"
        "second.__enter__()\n"
        "make_cgroup('/two', ('cpu', 'cpuset', 'misc'))\n"
        "(CGROUP_ROOT / 'two' / 'cgroup.subtree_control').write_text('+cpuset')\n"
        "now('both')\n"
        "first.__exit__(None, None, None)\n"
        "now('one has ended')\n"
        "second.__exit__(None, None, None)\n"
        "now('both have ended')\n"
        "(CGROUP_ROOT / 'two' / 'cgroup.subtree_control').write_text('-cpuset')\n"
        "with controllers_as_before():\n"
        "    make_cgroup('/three', ('cpu',))\n"
        "now('another has ended')\n"
    )
    run = guest.boot(machine, (sys.executable, str(script)), CAPACITY)
    assert run.status == 0, run.output
    said = run.output.splitlines()
    assert "before ['pids']" in said
    assert "both ['cpu', 'cpuset', 'misc', 'pids']" in said
    assert "one has ended ['cpu', 'cpuset', 'misc', 'pids']" in said
    assert "both have ended ['cpuset', 'misc', 'pids']" in said
    assert "another has ended ['cpuset', 'misc', 'pids']" in said


def test_deadline_ends_a_guest_that_does_not_end() -> None:
    machine = guest.needed()
    run = guest.boot(machine, ("sleep", "1000"), CAPACITY, timeout_s=2.0)
    assert run.status is None
    assert "test: killed after" in run.output
    assert not [pid for pid in _children() if b"qemu" in pid or b"mem=" in pid]


def test_words_that_the_command_line_cannot_carry_are_refused() -> None:
    machine = guest.Guest("none", Path("/none"), Path("/none"))
    with pytest.raises(ValueError, match="space, comma or quote"):
        guest.boot(machine, ("echo", "two words"), CAPACITY)


def test_initramfs_is_the_same_each_time(tmp_path: Path) -> None:
    modules = tmp_path / "modules"
    modules.mkdir()
    (modules / "overlay.ko").write_bytes(b"\x7fELF\0depends=first-one\0")
    (modules / "first_one.ko").write_bytes(b"\x7fELF\0depends=\0")
    for name in ("fakemisc.ko", "miscnames.ko", "busybox", "init"):
        (tmp_path / name).write_bytes(name.encode())
    parts = (tmp_path / "busybox", tmp_path / "init", (modules, tmp_path))
    assert initramfs(*parts) == initramfs(*parts)


def _children() -> list[bytes]:
    """Command lines of this process's children."""
    found: list[bytes] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                status, line = (entry / "status").read_text(), (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if f"PPid:\t{os.getpid()}\n" in status:
                found.append(line)
    return found
