"""What a start loads: nothing that was not asked for; and the unit tier on other Pythons, each of that name on PATH."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.patience import scaled
from tests.peers.find import absent

WITHIN_S = scaled(60)
SHOWS = "print(*sorted(sys.modules), file=sys.stderr)"
RUNS = "import runpy; runpy.run_module('nodeward', run_name='__main__')"
OURS = {"aiohttp", "asyncio", "google.protobuf", "msgspec", "uvloop", "yaml"}
NEVER_BY_ITSELF = {"grpc", "hpack", "prometheus_client", "re2", "rich"}


def loaded(code: str, shows: str = SHOWS) -> set[str]:
    line = [sys.executable, "-c", f"import sys\ntry:\n    {code}\nfinally:\n    {shows}"]
    done = subprocess.run(line, capture_output=True, text=True, timeout=WITHIN_S)
    assert done.returncode == 0, done.stderr
    return set(done.stderr.split())


def test_help_loads_no_command_and_no_library() -> None:
    there = loaded(f"sys.argv = ['nodeward', '--help']; {RUNS}")

    assert there & (OURS | NEVER_BY_ITSELF) == set()
    ours = {name.removeprefix("nodeward.") for name in there if name.startswith("nodeward.")}
    assert ours == {"cli", "cli.exits", "cli.groups", "cli.main", "core", "core.errors"}


def test_a_daemon_loads_no_neighbour_before_it_is_chosen() -> None:
    """Cgroups, the machine's CPUs and the operators' socket are always there."""
    there = loaded("import nodeward.programs.node.run")

    rooms = {name.split(".")[2] for name in there if name.startswith("nodeward.neighbours.")}
    assert rooms - {"cri", "kubernetes"} == {"cgroups", "formats", "sockets", "sysfs"}
    assert there & {"nodeward.neighbours.cri.session", "nodeward.neighbours.kubernetes.client"} == set()
    assert there & (NEVER_BY_ITSELF | {"google.protobuf", "uvloop"}) == set()


def test_a_runtime_that_calls_for_a_placement_waits_for_little() -> None:
    """Its budget is 80 ms for the whole process; `asyncio` alone takes 40."""
    words = "nodeward vms cgroup plan --sandbox s1 --cgroups-path /p/s1 --version 2"
    there = loaded(f"sys.argv = '{words}'.split(); {RUNS}")

    assert there & (OURS | NEVER_BY_ITSELF) == set()
    assert {name for name in there if name.startswith("nodeward.neighbours")} == set()
    assert len([name for name in there if name.startswith("nodeward.")]) <= 24


def test_a_status_is_drawn_by_few_modules_and_no_decision() -> None:
    """Packages, whose files are empty, are not counted."""
    shows = "print(*[m.__file__ for n, m in sys.modules.items() if n[:9] == 'nodeward.'], file=sys.stderr)"
    found = loaded("from nodeward.cli import status; from nodeward.people import client, table", shows)
    there = [Path(one).stem for one in found if not one.endswith("__init__.py")]

    assert len(there) <= 35
    assert {"step", "apply"}.isdisjoint(there)


HERE = Path(__file__).parents[2]


@pytest.mark.nightly
@pytest.mark.parametrize("version", ["3.12", "3.13"])
def test_the_unit_tier_passes_on_another_python(version: str, tmp_path: Path) -> None:
    if subprocess.run(["sh", "-c", f"python{version} -c 'import ensurepip'"], check=False).returncode:
        absent(f"NO PYTHON {version} HERE: nothing was tested with it; run apt-get install python{version}-venv")
    pip = f"{tmp_path}/bin/pip install --quiet --disable-pip-version-check"
    steps = f"""python{version} -m venv {tmp_path}
        {pip} --require-hashes -r constraints/dev.txt
        {pip} --no-deps --no-build-isolation -e .
        {tmp_path}/bin/python -m pytest -q -p no:cacheprovider -m "not nightly" tests/unit"""
    done = subprocess.run(["sh", "-ec", steps], cwd=HERE, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
