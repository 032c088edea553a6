"""What all tiers share: how cases are put beside one another, and what a run says at its end.

`make test` runs the cases in a few processes (pytest-xdist). The cases of a file keep together, since they share a
cluster, a guest or a node; so do the files of a group here. A case with sockets or processes that fails runs once more,
and the end of the run names it.
"""

import gc
import os
import resource
import signal
from collections.abc import Iterator
from typing import Final

import pytest
from _pytest.terminal import TerminalReporter
from hypothesis import settings
from xdist.scheduler import LoadScopeScheduling

from tests.rigs.awaited import loop_of_the_daemon as loop_of_the_daemon
from tests.rigs.awaited import pytest_pyfunc_call as pytest_pyfunc_call
from tests.told import LINES

# A property says nothing of time: on a busy machine the same example takes a thousand times as long.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")

# Who runs the tests in the background has them ignore these, and every program that they start and mean to end so too.
for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, signal.SIG_DFL if number != signal.SIGINT else signal.default_int_handler)

# A third of what it takes to collect the cases is collecting garbage, of which there is none yet.
gc.disable()

# Half of what an API server takes until it is ready is collecting garbage.
os.environ |= {"GOGC": "off", "GOMEMLIMIT": "512MiB"}

# pytest-xdist gives its processes a terminal's size; what the tests start takes its output for a pipe, as it is.
for name in ("COLUMNS", "LINES"):
    os.environ.pop(name, None)

KUBELETS: Final = (
    *("contract/kubelet", "real/test_cold_plug", "real/test_gate", "real/test_keys_offered", "real/test_kubectl"),
    *("real/test_kubelet", "real/test_pods_api", "real/test_relay_kubelet", "real/test_relay_resize"),
)
"""They change the machine and put back what they found: one after the other."""
LONGEST: Final = (
    *("vm/test_joined", "vm/test_units", "vm/test_cpus"),
    *KUBELETS,
    *("vm", "real", "contract", "component/test"),
)
"""What begins first, so that no process has a long file left when the others are done."""
AGAIN: Final = ("component", "contract", "real")
"""Folders with sockets and processes, whose failed cases run once more; a guest's chain does as a whole (vm/chains)."""
NIGHTLY: Final = (
    *("component/test_sim_mutants", "contract/podapi", "contract/quantity", "contract/sandboxes/test_c"),
    *("contract/sandboxes/test_direct_volumes", "contract/sandboxes/test_sizes", "real/test_bench"),
    *("real/test_cold_plug", "real/test_cri_suite", "real/test_doc_host", "real/test_hints", "real/test_image"),
    *("real/test_kata_host", "real/test_keys_offered", "real/test_kubelet", "real/test_late_plugin"),
    *("real/test_launched_plugin", "real/test_make_run", "real/test_nfd_daemon", "real/test_relay_kubelet"),
    *("real/test_relay_resize", "real/test_release", "real/test_two_transports", "vm/test_hook"),
)
"""What needs a neighbour that is not DAILY (tests/peers/recipes.py), or takes long; other cases are marked."""


def _is_of(path: str, names: tuple[str, ...]) -> bool:
    return path.removeprefix("tests/").startswith(names)


def _rank(item: pytest.Item) -> int:
    return next((rank for rank, name in enumerate(LONGEST) if _is_of(item.nodeid, (name,))), len(LONGEST))


def _group(case: str) -> str:
    return "kubelets" if _is_of(case, KUBELETS) else case.partition("::")[0]


def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """Files beside one another, each whole in one process, and those of KUBELETS in the same."""
    config.option.loadscopereorder = False
    scheduler = LoadScopeScheduling(config, log)
    scheduler._split_scope = _group
    return scheduler


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=_rank)
    for item in items:
        if _is_of(item.nodeid, AGAIN):
            item.add_marker(pytest.mark.flaky(reruns=1))
        if _is_of(item.nodeid, NIGHTLY):
            item.add_marker("nightly")


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


def pytest_runtest_teardown() -> None:
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)  # a command that is played in this process may let it end by one


def pytest_testnodedown(node: object, error: object) -> None:
    """What a process of the run has seen comes to the one that prints."""
    LINES.extend(getattr(node, "workeroutput", {}).get("seen", ()))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> Iterator[None]:
    """The last lines: how to run what failed alone, and what was left out and what brings it."""
    workeroutput = getattr(session.config, "workeroutput", None)
    if workeroutput is not None:
        workeroutput["seen"] = LINES
    yield
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if workeroutput is not None or not isinstance(reporter, TerminalReporter):
        return
    failed = dict.fromkeys(one.nodeid for kind in ("failed", "error") for one in reporter.stats.get(kind, ()))
    for case in failed:
        reporter.write_line(f"alone: .venv/bin/pytest '{case}'")
    skipped = len(reporter.stats.get("skipped", ()))
    whole = session.config.getoption("dist", "no") != "no"
    if skipped and whole and os.environ.get("NODEWARD_REQUIRE_ALL") == "1":
        reporter.write_line(f"NODEWARD_REQUIRE_ALL=1 demands every case, and {skipped} were skipped: see above why")
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
    elif skipped:
        reporter.write_line(f"{skipped} cases were left out: what they need is not here; `make tools` brings it")
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    reporter.write_line(f"{used.ru_utime + used.ru_stime:.0f} s of processor")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Names what failed at once: a whole run takes long."""
    if report.failed and not os.environ.get("PYTEST_XDIST_WORKER"):
        print(f"\nFAILED at {report.when}: {report.nodeid}", flush=True)


def pytest_terminal_summary(terminalreporter: TerminalReporter) -> None:
    for report in terminalreporter.stats.get("rerun", ()):
        terminalreporter.section(f"first try of {report.nodeid}")
        terminalreporter.write_line(report.longreprtext)
    if LINES:
        terminalreporter.section("seen")
    for line in LINES:
        terminalreporter.write_line(line)
