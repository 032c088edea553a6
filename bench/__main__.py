"""`make bench`: what Nodeward costs, as ratios measured in one run on this machine.

    python -m bench [PART ...]    (all parts; --help names them)

Each figure stands beside a floor measured in the same rounds, or beside the processor time it took, so that it means
something on a busy machine too. Nothing is asserted: a person reads it. The NRI part needs built neighbours
(`scripts/build-peers`).
"""

import argparse
import compileall
import sys
from pathlib import Path

import nodeward
from bench import (
    allocate,
    cpus,
    dump,
    engine,
    grants,
    hook,
    keys,
    lifetimes,
    metrics,
    nri,
    podapi,
    pools,
    relay,
    rss,
    sampler,
    sandboxes,
    start_up,
    webhook,
)
from bench.plugins import MissingError

PARTS = {
    "help": start_up.run,
    "hook": hook.run,
    "engine": engine.run,
    "nri": nri.run,
    "cpus": cpus.run,
    "pools": pools.run,
    "relay": relay.run,
    "dump": dump.run,
    "sampler": sampler.run,
    "sandboxes": sandboxes.run,
    "keys": keys.run,
    "grants": grants.run,
    "allocate": allocate.run,
    "rss": rss.run,
    "lifetimes": lifetimes.run,
    "webhook": webhook.run,
    "metrics": metrics.run,
    "podapi": podapi.run,
}


def main() -> int:
    """Runs the named parts, or all; 1 where a part could not run."""
    parser = argparse.ArgumentParser(prog="python -m bench", description="What Nodeward costs.")
    parser.add_argument("parts", nargs="*", metavar="part", help=f"any of {', '.join(PARTS)}; all without a name")
    names: list[str] = parser.parse_args().parts
    unknown = [name for name in names if name not in PARTS]
    if unknown:
        parser.error(f"unknown part {', '.join(unknown)}; there are {', '.join(PARTS)}")
    # as pip leaves what it installs: a program that compiles itself at each start would be measured for that
    compileall.compile_dir(Path(nodeward.__file__).parent, quiet=1)
    skipped = 0
    for name in names or PARTS:
        try:
            PARTS[name]()
        except MissingError as error:
            print(f"{name}: skipped, {error}")
            skipped += 1
    return 1 if skipped else 0


if __name__ == "__main__":
    sys.exit(main())
