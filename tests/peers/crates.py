"""Which crates a peer in Rust is made of: `crates.sum` has a line for each, its name, version and SHA-256.

Cargo's lock file says the same and where each crate comes from, which is the machine's business. So the lock file is
made when the peer is built, and no address is in the tree.

    cargo generate-lockfile, then python3 -m tests.peers.crates <Cargo.lock >crates.sum     after a change of Cargo.toml
"""

import sys
import tomllib

_FORMAT = 4
_PACKAGE = '\n[[package]]\nname = "{}"\nversion = "{}"\nchecksum = "{}"\nsource = "{}"\n'


def sums(lock: str) -> str:
    packages: list[dict[str, str]] = tomllib.loads(lock)["package"]
    return "".join(f"{one['name']} {one['version']} {one['checksum']}\n" for one in packages if "checksum" in one)


def lock(pinned: str, source: str) -> str:
    return f"version = {_FORMAT}\n" + "".join(_PACKAGE.format(*line.split(), source) for line in pinned.splitlines())


def source(lock: str) -> str:
    """The one registry of a lock file. ValueError if there are several, or none."""
    packages: list[dict[str, str]] = tomllib.loads(lock)["package"]
    (found,) = {one["source"] for one in packages if "source" in one}
    return found


if __name__ == "__main__":
    sys.stdout.write(sums(sys.stdin.read()))
