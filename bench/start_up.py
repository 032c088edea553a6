"""The installed `nodeward --help` against an interpreter that does nothing, and what it imports."""

import subprocess
import sys
import time

from bench import plugins
from bench.measure import median

RUNS = 9
HEAVY = ("aiohttp", "asyncio", "google.protobuf", "msgspec", "rich", "yaml")
LIST = (
    f"import atexit, sys; atexit.register(lambda: print(*[m for m in {HEAVY!r} if m in sys.modules], file=sys.stderr))"
)


def run() -> None:
    """Medians of interleaved runs, in milliseconds."""
    script = plugins.installed("nodeward")
    floor: list[float] = []
    helped: list[float] = []
    for _ in range(RUNS):
        floor.append(_took(sys.executable, "-c", "pass"))
        helped.append(_took(script, "--help"))
    ours, empty = median(helped), median(floor)
    print("nodeward --help, milliseconds")
    print(f"  {ours:.0f}, an empty interpreter {empty:.0f} ({ours / empty:.1f}x)   goal 120")
    looked = f"{LIST}; import runpy; sys.argv = [{script!r}, '--help']; runpy.run_path({script!r}, run_name='__main__')"
    done = subprocess.run([sys.executable, "-c", looked], check=True, capture_output=True, text=True)
    print(f"  imported of {', '.join(HEAVY)}: {done.stderr.strip() or 'none'}   goal none")


def _took(*command: str) -> float:
    began = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return (time.perf_counter() - began) * 1000
