"""What configurations say of VMs: Kata's configuration.toml with its drop-ins, and the runtime handlers of containerd
and CRI-O. Pure: bytes and tables to values.

Sources: kata-containers `src/runtime/pkg/katautils/config.go` and `src/libs/kata-types/src/config/drop_in.rs` (tables
are merged, everything else is replaced); containerd's docs/cri/config.md; crio.conf(5).
"""

import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from nodeward.core.errors import WireError
from nodeward.core.vms import Handler, Profile

Table = Mapping[str, object]
DEFAULTS_GO = (
    "/etc/kata-containers/configuration.toml",
    "/usr/share/defaults/kata-containers/configuration.toml",
    "/opt/kata/share/defaults/kata-containers/configuration.toml",
)
DEFAULTS_RS = (
    "/etc/kata-containers/runtime-rs/configuration.toml",
    "/usr/share/defaults/kata-containers/runtime-rs/configuration.toml",
    "/opt/kata/share/defaults/kata-containers/runtime-rs/configuration.toml",
)
_MIB = 1024 * 1024
_MILLI = 1000
_MOST_NAMES = 256
_MOST_DEEP = 32
_MOST_TEXT = 4096
_MOST_NUMBER = 1 << 40
_RS = "runtime-rs"


@dataclass(frozen=True, slots=True)
class Source:
    """A file that was read, and what it says."""

    path: str
    table: Table


def parse(data: bytes) -> Table:
    """A file's tables. WireError names the line."""
    try:
        return tomllib.loads(data.decode("utf-8"))
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise WireError("TOML", f"no UTF-8 at line {line}") from error
    except tomllib.TOMLDecodeError as error:
        raise WireError("TOML", str(error)) from error
    except (RecursionError, ValueError) as error:
        raise WireError("TOML", f"nested too deeply, or a number is too long: {type(error).__name__}") from error


def handlers(containerd: Sequence[Table], crio: Sequence[Table], profiles: Mapping[str, Profile]) -> list[Handler]:
    """The handlers that start VMs, by the settings of containerd and the section `crio` of CRI-O's, later files over
    earlier ones. Those named in `profiles` count among them, whatever they are. `config` is the file that they name."""
    found: dict[str, Handler] = {}
    of_containerd = [_from_containerd(*row) for row in _rows(_containerd(containerd))]
    for handler in (*of_containerd, *(_from_crio(*row) for row in _rows(_crio(crio)))):
        is_kata = handler.profile is not None or _says_kata(handler)
        if is_kata or handler.name in profiles:
            found.setdefault(handler.name, replace(handler, profile=profiles.get(handler.name, handler.profile)))
    return list(found.values())[:_MOST_NAMES]


def with_kata(handler: Handler, sources: Sequence[Source], told: Profile | None = None) -> Handler:
    """The handler with what Kata's configuration says: the main file, then its drop-ins. `told`: the profile by the
    settings of Nodeward, which stands."""
    merged: Table = {}
    only_from = ""
    for source in sources:
        merged = merge(merged, source.table)
        if "sandbox_cgroup_only" in _table(source.table, "runtime"):
            only_from = source.path
    runtime, name = _table(merged, "runtime"), _hypervisor(merged)
    machine = _table(_table(merged, "hypervisor"), name)
    profile = told or (Profile.KATA_RS if _is_rs(handler, runtime, name, sources) else Profile.KATA_GO)
    return replace(
        handler,
        profile=profile,
        config=sources[0].path if sources else handler.config,
        drop_ins=tuple(one.path for one in sources[1:]),
        hypervisor=name,
        only=_flag(runtime, "sandbox_cgroup_only"),
        only_from=only_from,
        static=_flag(runtime, "static_sandbox_resource_mgmt"),
        default_vcpus_m=_scaled(machine, "default_vcpus", _MILLI),
        default_memory=_scaled(machine, "default_memory", _MIB),
        overhead_vcpus_m=_scaled(machine, "overhead_vcpus", _MILLI, least=0),
        overhead_memory=_scaled(machine, "overhead_memory", _MIB, least=0),
        enable_annotations=_words(machine, "enable_annotations"),
        pod_resources=_text(runtime, "pod_resource_api_sock"),
    )


def pulls(
    handler: str,
    containerd: Sequence[Source],
    crio: Sequence[Source],
    kata: Sequence[Source],
    nydus: Sequence[Source] = (),
) -> tuple[bool | None, str]:
    """Whether images of this handler are pulled inside the guest, and which file and key says so; None where a file
    leaves it open. `crio` are its sections `crio`, `kata` the handler's configuration, `nydus` the snapshotter's.

    Sources: Kata's configuration.toml (`experimental_force_guest_pull`; runtime-rs the word in `experimental`),
    crio.conf(5) `runtime_pull_image`, containerd's `snapshotter` of a runtime, nydus-snapshotter's `fs_driver`."""
    path, said = _last(kata, lambda table: _table(table, "runtime").get("experimental_force_guest_pull"))
    if said is True:
        return True, f"{path}: [runtime] experimental_force_guest_pull = true"
    path, said = _last(kata, lambda table: _table(table, "runtime").get("experimental"))
    if isinstance(said, list) and "force_guest_pull" in said:
        return True, f"{path}: [runtime] experimental has force_guest_pull"
    path, said = _last(crio, lambda table: _table(_crio((table,)), handler).get("runtime_pull_image"))
    if said is True:
        return True, f"{path}: [crio.runtime.runtimes.{handler}] runtime_pull_image = true"
    path, said = _last(containerd, lambda table: _snapshotter(table, handler))
    if not isinstance(said, str) or "nydus" not in said:
        return False, "no option of the runtime or of Kata asks for a pull in the guest"
    key = f"{path}: snapshotter {said[:_MOST_TEXT]!r} of runtime {handler}"
    path, driver = _last(nydus, lambda table: _table(table, "daemon").get("fs_driver"))
    if not isinstance(driver, str):
        return None, f"{key}: that snapshotter's configuration (fs_driver) was not found"
    return driver == "proxy", f"{key}; {path}: [daemon] fs_driver = {driver[:_MOST_TEXT]!r}"


def default_handler(containerd: Sequence[Source], crio: Sequence[Source]) -> str:
    """The handler of pods that name none; empty where no file names it."""

    def of_containerd(table: Table) -> object:
        plugins = [_table(_is_table(one) or {}, "containerd") for one in _table(table, "plugins").values()]
        return next((one["default_runtime_name"] for one in plugins if "default_runtime_name" in one), None)

    _, said = _last(containerd, of_containerd)
    _, other = _last(crio, lambda table: _table(table, "runtime").get("default_runtime"))
    return next((one for one in (said, other) if isinstance(one, str)), "")


def names(containerd: Sequence[Source], crio: Sequence[Source]) -> frozenset[str]:
    """The handlers that the runtimes' files name, those without a VM too."""
    tables = (_containerd([one.table for one in containerd]), _crio([one.table for one in crio]))
    return frozenset(name for table in tables for name, _ in _rows(table))


def _last(sources: Sequence[Source], look: Callable[[Table], object]) -> tuple[str, object]:
    """The file that says something last, and what."""
    said = [(one.path, found) for one in sources if (found := look(one.table)) is not None]
    return said[-1] if said else ("", None)


def _snapshotter(table: Table, handler: str) -> object:
    """containerd's for this handler: below its runtimes, or in version 3 below the plugin for images."""
    rows = [_table(_containerd((table,)), handler)]
    for plugin in _table(table, "plugins").values():
        rows.append(_table(_table(_is_table(plugin) or {}, "runtime_platforms"), handler))
    return next((row["snapshotter"] for row in rows if row.get("snapshotter")), None)


def defaults(handler: Handler) -> tuple[str, ...]:
    """The default paths of a configuration that its handler does not name."""
    return DEFAULTS_RS if handler.profile is Profile.KATA_RS else DEFAULTS_GO


def merge(base: Table, over: Table, depth: int = 0) -> dict[str, object]:
    """Tables are merged; a list or a value takes the place of the one before."""
    merged = dict(base)
    for key, value in over.items():
        below, left = _is_table(value), _is_table(merged.get(key))
        merged[key] = value if below is None or left is None or depth > _MOST_DEEP else merge(left, below, depth + 1)
    return merged


def _is_table(value: object) -> dict[str, object] | None:
    return {str(key): one for key, one in value.items()} if isinstance(value, dict) else None


def _table(table: Table, key: str) -> dict[str, object]:
    return _is_table(table.get(key)) or {}


def _containerd(files: Sequence[Table]) -> Table:
    """Its runtimes: in version 1 below `plugins.cri`, in 2 and 3 below the plugin's name."""
    merged: Table = {}
    for tree in files:
        for plugin in _table(tree, "plugins").values():
            merged = merge(merged, _table(_table(_is_table(plugin) or {}, "containerd"), "runtimes"))
    return merged


def _crio(sections: Sequence[Table]) -> Table:
    merged: Table = {}
    for section in sections:
        merged = merge(merged, _table(_table(section, "runtime"), "runtimes"))
    return merged


def _rows(runtimes: Table) -> Iterator[tuple[str, dict[str, object]]]:
    for name, row in runtimes.items():
        table = _is_table(row)
        if table is not None:
            yield name, table


def _from_containerd(name: str, row: Table) -> Handler:
    options = _table(row, "options")
    program = _text(row, "runtime_path") or _text(options, "BinaryName")
    kind = _text(row, "runtime_type")
    rs = Profile.KATA_RS if _RS in f"{name} {kind} {program} {_text(options, 'ConfigPath')}" else None
    serves = "shim" in (_text(row, "sandboxer"), _text(row, "sandbox_mode"))  # the latter is containerd 1.7's
    return Handler(name, kind, rs, _text(options, "ConfigPath"), passes=_words(row, "pod_annotations"), serves=serves)


def _from_crio(name: str, row: Table) -> Handler:
    program, config = _text(row, "runtime_path"), _text(row, "runtime_config_path")
    kind = _text(row, "runtime_type") if "kata" not in program else f"{_text(row, 'runtime_type')} {program}".strip()
    rs = Profile.KATA_RS if _RS in f"{name} {program} {config}" else None
    return Handler(name, kind, rs, config)


def _says_kata(handler: Handler) -> bool:
    """`io.containerd.kata.v2`, `io.containerd.kata-qemu.v2`, `vm /usr/bin/containerd-shim-kata-v2`."""
    return "kata" in handler.runtime_type


def _hypervisor(merged: Table) -> str:
    """The table that counts: the one that runtime-rs is told by name, else the first one there."""
    named = _text(_table(merged, "runtime"), "hypervisor_name")
    return named or next(iter(sorted(_table(merged, "hypervisor"))), "")


def _is_rs(handler: Handler, runtime: Table, hypervisor: str, sources: Sequence[Source]) -> bool:
    paths = " ".join(one.path for one in sources[:1])
    told = "name" in runtime or "hypervisor_name" in runtime
    return handler.profile is Profile.KATA_RS or _RS in paths or told or hypervisor == "dragonball"


def _flag(table: Table, key: str) -> bool | None:
    value = table.get(key)
    return value if isinstance(value, bool) else None


def _scaled(table: Table, key: str, unit: int, least: int = 1) -> int | None:
    """A number in the unit that Nodeward uses. One below `least` stands for a default of Kata's own: None."""
    value = table.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value < _MOST_NUMBER:
        return None
    return round(value * unit)


def _text(table: Table, key: str) -> str:
    value = table.get(key)
    return value[:_MOST_TEXT] if isinstance(value, str) else ""


def _words(table: Table, key: str) -> tuple[str, ...]:
    value = table.get(key)
    listed = value if isinstance(value, list) else ()
    return tuple(one[:_MOST_TEXT] for one in listed[:_MOST_NAMES] if isinstance(one, str))
