"""Makes container images: of one layer, for a registry of ours or as an OCI archive for `ctr images import`."""

import hashlib
import io
import json
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

LAYER = "application/vnd.oci.image.layer.v1.tar"
CONFIG = "application/vnd.oci.image.config.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"


@dataclass(frozen=True, slots=True)
class Image:
    manifest: bytes
    blobs: Mapping[str, bytes]
    """By digest: its configuration and its layer."""


def digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def _described(media_type: str, content: bytes) -> dict[str, object]:
    return {"mediaType": media_type, "digest": digest(content), "size": len(content)}


def _tar(files: Mapping[str, bytes], mode: int, links: Mapping[str, str]) -> bytes:
    """A tar archive with the same bytes for the same files; `links` are further names of files in it."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), mode
            archive.addfile(entry, io.BytesIO(content))
        for name, target in links.items():
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname, entry.mode = tarfile.LNKTYPE, target, mode
            archive.addfile(entry)
    return out.getvalue()


def image(files: Mapping[str, bytes], settings: Mapping[str, object], links: Mapping[str, str] | None = None) -> Image:
    """An image with these files, all of them executable; `settings` say what it runs and how."""
    layer = _tar(files, 0o755, links or {})
    config = json.dumps(
        {
            "architecture": "amd64",
            "os": "linux",
            "config": dict(settings),
            "rootfs": {"type": "layers", "diff_ids": [digest(layer)]},
        }
    ).encode()
    manifest = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": _described(CONFIG, config),
        "layers": [_described(LAYER, layer)],
    }
    return Image(json.dumps(manifest).encode(), {digest(content): content for content in (config, layer)})


def write_archive(target: Path, reference: str, programs: Mapping[str, Path]) -> None:
    """Write an image with these programs at its root; the first is what it runs."""
    made = image(
        {name: path.read_bytes() for name, path in programs.items()}, {"Entrypoint": [f"/{next(iter(programs))}"]}
    )
    names = {"io.containerd.image.name": reference, "org.opencontainers.image.ref.name": reference.rsplit(":", 1)[1]}
    described = {**_described(MANIFEST, made.manifest), "annotations": names}
    blobs = {**made.blobs, digest(made.manifest): made.manifest}
    files = {f"blobs/{name.replace(':', '/')}": content for name, content in blobs.items()}
    index = {"schemaVersion": 2, "manifests": [described]}
    head = {"oci-layout": b'{"imageLayoutVersion":"1.0.0"}', "index.json": json.dumps(index).encode()}
    target.write_bytes(_tar({**head, **files}, 0o644, {}))
