"""The names of cgroups: systemd's slices, and `slice:prefix:id` of an OCI spec's `cgroupsPath`."""


def slice_levels(name: str) -> list[str]:
    """The slices from the root down to this one, as systemd.slice(5) reads its name: `a-b.slice` lies in `a.slice`.
    ValueError for one whose parts between dashes are not all there."""
    stem = name.removesuffix(".slice")
    if stem == "-":
        return []
    parts = stem.split("-")
    if not all(parts) or "/" in stem:
        raise ValueError(f"{name!r} is no slice name: a slash, or an empty part between dashes")
    return ["-".join(parts[: depth + 1]) + ".slice" for depth in range(len(parts))]


def of_systemd(cgroups_path: str) -> tuple[str, str, str] | None:
    """Slice, prefix and id of a `cgroupsPath` in systemd's form; None for any other. Kata Go, runtime-rs and runc tell
    them by the same rule."""
    parts = cgroups_path.split(":")
    return (parts[0], parts[1], parts[2]) if len(parts) == 3 and parts[0].endswith(".slice") else None


def scope_path(slice_name: str, prefix: str, name: str) -> str:
    """A scope's cgroup from the root of its tree; `prefix` with its dash. ValueError where the slice's name is none."""
    return "/" + "/".join((*slice_levels(slice_name), f"{prefix}{name}.scope"))
