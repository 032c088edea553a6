"""Makes a container image without a registry: an OCI archive of one layer, for `ctr images import`."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Mapping
from pathlib import Path

LAYER = "application/vnd.oci.image.layer.v1.tar"
CONFIG = "application/vnd.oci.image.config.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"


def _tar(files: Mapping[str, bytes], mode: int) -> bytes:
    """A tar archive with the same bytes for the same files."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), mode
            archive.addfile(entry, io.BytesIO(content))
    return out.getvalue()


def write_archive(target: Path, reference: str, programs: Mapping[str, Path]) -> None:
    """Write an image with these programs at its root; the first is what it runs."""
    blobs: dict[str, bytes] = {}

    def blob(media_type: str, content: bytes) -> dict[str, str | int]:
        digest = hashlib.sha256(content).hexdigest()
        blobs[f"blobs/sha256/{digest}"] = content
        return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(content)}

    layer = _tar({name: path.read_bytes() for name, path in programs.items()}, 0o755)
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Entrypoint": [f"/{next(iter(programs))}"]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": blob(CONFIG, json.dumps(config).encode()),
        "layers": [blob(LAYER, layer)],
    }
    names = {"io.containerd.image.name": reference, "org.opencontainers.image.ref.name": reference.rsplit(":", 1)[1]}
    described = {**blob(MANIFEST, json.dumps(manifest).encode()), "annotations": names}
    index = {"schemaVersion": 2, "manifests": [described]}
    head = {"oci-layout": b'{"imageLayoutVersion":"1.0.0"}', "index.json": json.dumps(index).encode()}
    target.write_bytes(_tar({**head, **blobs}, 0o644))
