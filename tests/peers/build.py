"""Builds the peers; scripts/build-peers is its command line.

Everything is built in a scratch folder beside the finished peers and moved into place by one rename, so that an
interrupted build leaves nothing which looks finished. Builds are niced: they run beside people and tests. Where Go
fetches modules from is the machine's business (GOPROXY and friends are passed on), what it fetches is fixed by go.sum.
The same holds for cargo and crates.sum.
"""

import argparse
import fcntl
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.peers import crates
from tests.peers.recipes import DAILY, RECIPES, CProgramOf, CrateOf, Recipe, Step, cache_folder
from tests.peers.toolchain import ToolchainError, cargo_folder, go_folder

STEP_TIMEOUT_S = 5400.0
GO_FLAGS = "-mod=readonly -buildvcs=false -modcacherw -gcflags=all=-dwarf=false"
"""Nobody debugs a peer, and its programs are stripped: what a debugger needs is not made in the first place."""
COLLECTION = {"GOGC": "off", "GOMEMLIMIT": "3GiB"}
"""Of Go's own tools, which else spend a fifth of their time on it; the programs come out the same, byte for byte."""


class BuildError(Exception):
    """A peer could not be built; the message has the end of what Go said."""


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


def environment(recipe: Recipe, scratch: Path) -> dict[str, str]:
    env = dict(os.environ)
    try:
        folder = cargo_folder() if recipe.of_rust() else go_folder(cache_folder().parent)
        env["PATH"] = f"{folder}{os.pathsep}{env.get('PATH', os.defpath)}"
    except ToolchainError as error:
        raise BuildError(str(error)) from error
    if recipe.of_rust():
        return env | {"CARGO_TARGET_DIR": str(scratch / "target")}
    env.update({"GOFLAGS": GO_FLAGS, "GOTOOLCHAIN": "local", "GOWORK": "off", **COLLECTION})
    if recipe.own_caches:
        env.update({"GOMODCACHE": str(scratch / "mod"), "GOCACHE": str(scratch / "build")})
    return env


def run(command: Sequence[str], folder: Path, env: dict[str, str]) -> str:
    try:
        done = subprocess.run(
            ["nice", "-n", "10", *command],
            cwd=folder,
            env=env,
            capture_output=True,
            text=True,
            timeout=STEP_TIMEOUT_S,
            check=False,
        )
    except FileNotFoundError as error:
        raise BuildError(f"{error.filename} is not on PATH; peers need nice") from error
    except subprocess.TimeoutExpired as error:
        raise BuildError(f"{' '.join(command[:3])} did not end within {STEP_TIMEOUT_S:.0f} s") from error
    if done.returncode:
        raise BuildError(f"{' '.join(command[:3])} ended with status {done.returncode}:\n{done.stderr[-4000:]}")
    return done.stdout


def compile_step(step: Step, work: Path, result: Path, env: dict[str, str]) -> None:
    output = result / step.output
    (output if step.output.endswith("/") else output.parent).mkdir(parents=True, exist_ok=True)
    target = f"{output}/" if step.output.endswith("/") else str(output)
    if isinstance(step, CProgramOf):
        module, folder = step.packages
        sources = sorted((module_folder(module, work, env) / folder).glob("*.c"))
        run(["gcc", "-std=c99", "-O2", "-static", "-s", "-o", target, *map(str, sources)], work, env)
        return
    if isinstance(step, CrateOf):
        compile_crate(step.packages[0], work, output, env)
        return
    command = [*step.verb(), "-trimpath", *step.flags, "-ldflags", step.ldflags, "-o", target, *step.packages]
    run(command, work, {**env, "CGO_ENABLED": "1" if step.cgo else "0"})


def compile_crate(program: str, work: Path, output: Path, env: dict[str, str]) -> None:
    """Build a crate of ours with exactly those crates that its crates.sum names."""
    lock, pinned = work / "Cargo.lock", (work / "crates.sum").read_text(encoding="utf-8")
    run(["cargo", "generate-lockfile"], work, env)
    lock.write_text(crates.lock(pinned, crates.source(lock.read_text(encoding="utf-8"))), encoding="utf-8")
    run(["cargo", "fetch"], work, env)
    needed = crates.sums(lock.read_text(encoding="utf-8"))
    if wrong := sorted({*needed.splitlines()} ^ {*pinned.splitlines()}):
        raise BuildError(f"crates.sum of {program} differs from what its Cargo.toml needs: {wrong[0]}; make it anew")
    run(["cargo", "build", "--locked"], work, env)
    shutil.copy(Path(env["CARGO_TARGET_DIR"]) / "debug" / program, output)


def module_folder(module: str, work: Path, env: dict[str, str]) -> Path:
    """Where Go has unpacked a module of the go.mod."""
    listed: dict[str, object] = json.loads(run(["go", "list", "-m", "-json", module], work, env))
    replaced = listed.get("Replace")
    folder = replaced.get("Dir") if isinstance(replaced, dict) else listed.get("Dir")
    if not isinstance(folder, str):
        raise BuildError(f"module {module} has no folder; is it in this peer's go.mod?")
    return Path(folder)


def copy_protos(recipe: Recipe, work: Path, result: Path, env: dict[str, str]) -> None:
    """Take the schemas out of the modules, so that tests need no module cache."""
    for name, module, path in recipe.protos:
        (result / "proto").mkdir(exist_ok=True)
        shutil.copyfile(module_folder(module, work, env) / path, result / "proto" / name)


@contextmanager
def only_one(name: str) -> Iterator[None]:
    """Hold the lock of this peer: a second build waits for the first and then finds its result."""
    cache_folder().mkdir(parents=True, exist_ok=True)
    with (cache_folder() / f".{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def build(recipe: Recipe) -> Path:
    with only_one(recipe.name):
        home = recipe.home()
        if home.is_dir():
            say(f"{recipe.name}: in the cache, {home}")
            return home
        begin = time.monotonic()
        scratch = cache_folder() / f"scratch-{recipe.name}"
        work, result = scratch / "work", scratch / "result"
        for folder in (work, result):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
        for path in recipe.sources():
            shutil.copyfile(path, work / path.name)
        env = environment(recipe, scratch)
        for number, step in enumerate(recipe.steps, 1):
            say(f"{recipe.name}: step {number} of {len(recipe.steps)}, {' '.join(step.packages)}")
            compile_step(step, work, result, env)
        copy_protos(recipe, work, result, env)
        for link, program in recipe.links:
            (result / link).symlink_to(program)
        result.rename(home)
        shutil.rmtree(scratch, ignore_errors=True)
        say(f"{recipe.name}: built in {time.monotonic() - begin:.0f} s, {home}")
        return home


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="build-peers", description="Build the real programs that tests talk to.")
    parser.add_argument("names", nargs="*", metavar="name", help=f"any of {', '.join(RECIPES)}")
    parser.add_argument("--all", action="store_true", help=f"all; else, without a name, {', '.join(DAILY)}")
    given = parser.parse_args(arguments)
    names: list[str] = given.names
    unknown = sorted(set(names) - set(RECIPES))
    if unknown:
        parser.error(f"unknown peer {', '.join(unknown)}; there are {', '.join(RECIPES)}")
    failed = 0
    for name in names or (RECIPES if given.all else DAILY):
        try:
            build(RECIPES[name])
        except BuildError as error:
            failed += 1
            print(f"build-peers: {name}: {error}", file=sys.stderr, flush=True)
    return 1 if failed else 0
