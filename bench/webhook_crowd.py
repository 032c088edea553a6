"""The webhook under a crowd: many reviews in one moment, each on a connection of its own.

With connections that stand already the server is stopped while the reviews are brought, so that all of them are there
when it goes on, as after a stall. With new ones it is not: each client connects, shakes hands and asks. The clients are
one process beside the server, so on two processors an answer waits for that process too. Every answer's time is from
the moment in which the crowd is let go; a person compares it with the `timeoutSeconds` of deploy/webhook/webhook.yaml,
after which the API server does not listen any more.
"""

import os
import resource
import signal
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from bench.measure import quantile
from tests.component.webhook import crowd

ROUNDS = 5
WITHIN_S = 120.0
MANIFEST = Path(__file__).resolve().parents[1] / "deploy" / "webhook" / "webhook.yaml"


@dataclass(frozen=True, slots=True)
class Crowd:
    """So many clients with one review each, whose connections stand already or do not."""

    title: str
    body: bytes
    size: int
    greeted: bool = True


def run(port: int, pid: int, trust: ssl.SSLContext, message: Callable[[bytes], bytes], crowds: Sequence[Crowd]) -> None:
    """Each crowd, ROUNDS times."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 2 * max(one.size for one in crowds)), hard))
    try:
        patience = ", ".join(f"{name} {after_s} s" for name, after_s in timeouts().items())
        print(f"webhook, many reviews at once, {ROUNDS} rounds each; the API server waits: {patience}")
        for one in crowds:
            said = [answer for _ in range(ROUNDS) for answer in _round(port, pid, trust, message(one.body), one)]
            print(f"  {one.title}; peak of resident memory so far {_peak_mib(pid):.0f} MiB")
            for status in sorted({answer.status for answer in said}):
                times = [answer.after_s for answer in said if answer.status == status]
                late = sum(after_s > min(timeouts().values()) for after_s in times)
                print(
                    f"    {status or 'lost'} {len(times):6}   s: p50 {quantile(times, 0.5):6.3f}, "
                    f"p99 {quantile(times, 0.99):6.3f}, worst {max(times):6.3f}; {late} after the shorter timeout"
                )
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def timeouts() -> dict[str, int]:
    """How long the API server waits for each of the webhooks, in seconds."""
    found = yaml.safe_load(MANIFEST.read_text())
    return {one["name"]: one["timeoutSeconds"] for one in found["webhooks"]}


def _round(port: int, pid: int, trust: ssl.SSLContext, message: bytes, one: Crowd) -> list[crowd.Said]:
    if not one.greeted:
        with crowd.crowd(port, trust, one.size, WITHIN_S, greeted=False) as clients:
            return crowd.ask(clients, message, WITHIN_S)
    with crowd.crowd(port, trust, one.size, WITHIN_S, first=message) as clients:
        os.kill(pid, signal.SIGSTOP)
        try:
            return crowd.ask(clients, message, WITHIN_S, lambda: os.kill(pid, signal.SIGCONT))
        finally:
            os.kill(pid, signal.SIGCONT)


def _peak_mib(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) / 1024
