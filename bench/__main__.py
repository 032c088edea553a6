"""`make bench`: what Nodeward costs, as ratios measured in one run on this machine.

    python -m bench [help|engine|nri ...]    (all without a name)

Each figure stands beside a floor measured in the same rounds, or beside the processor time it took, so that it means
something on a busy machine too. Nothing is asserted: a person reads it. The NRI part needs built neighbours
(`scripts/build-peers`).
"""

import argparse

from bench import engine, nri, start_up

PARTS = {"help": start_up.run, "engine": engine.run, "nri": nri.run}


def main() -> None:
    """Runs the named parts, or all."""
    parser = argparse.ArgumentParser(prog="python -m bench", description="What Nodeward costs.")
    parser.add_argument("parts", nargs="*", metavar="part", help=f"any of {', '.join(PARTS)}; all without a name")
    names: list[str] = parser.parse_args().parts
    unknown = [name for name in names if name not in PARTS]
    if unknown:
        parser.error(f"unknown part {', '.join(unknown)}; there are {', '.join(PARTS)}")
    for name in names or PARTS:
        PARTS[name]()


if __name__ == "__main__":
    main()
