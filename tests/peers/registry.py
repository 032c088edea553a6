"""A registry on the loopback that serves the images of containerd's CRI suite, for runtimes that are to pull.

It runs as a program of its own, in the network of the containerd that pulls from it: `python registry.py PORT PAUSE`.
It says `up` when it listens. The images are busybox of this machine under several names, and a program that waits; they
differ from one another, since a runtime takes images with the same content for one.
"""

import shutil
import subprocess
import sys
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tests.patience import scaled
from tests.peers.image import MANIFEST, Image, digest, image

SHELLS = ("alpine", "busybox", "nginx", "resource-consumer")
"""Repositories of images that are busybox."""
PAUSE = "pause"


def shell(name: str, busybox: Path) -> Image:
    said = subprocess.run([busybox, "--list"], capture_output=True, text=True, timeout=scaled(30), check=True).stdout
    links = {f"bin/{applet}": "bin/busybox" for applet in said.split() if applet != "busybox"}
    files = {
        "bin/busybox": busybox.read_bytes(),
        "etc/passwd": b"root:x:0:0:root:/:/bin/sh\n",
        "etc/group": b"root:x:0:\n",
    }
    return image(files, {"Cmd": ["/bin/sh"], "Env": ["PATH=/bin"], "Labels": {"name": name}}, links)


def images(pause: Path) -> dict[str, Image]:
    place = shutil.which("busybox")
    if place is None:
        raise FileNotFoundError("no busybox on PATH: run scripts/install-tools")
    served = {name: shell(name, Path(place)) for name in SHELLS}
    return {**served, PAUSE: image({"pause": pause.read_bytes()}, {"Entrypoint": ["/pause"]})}


def handler(served: Mapping[str, Image]) -> type[BaseHTTPRequestHandler]:
    """What answers: manifests by any tag or by digest, and blobs."""
    blobs = {name: content for one in served.values() for name, content in one.blobs.items()}
    manifests = {digest(one.manifest): one.manifest for one in served.values()}

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _found(self) -> tuple[bytes, str] | None:
            """Content and media type: /v2/, /v2/NAME/manifests/REFERENCE, /v2/NAME/blobs/DIGEST."""
            match self.path.partition("?")[0].strip("/").split("/"):
                case ["v2"]:
                    return b"{}", "application/json"
                case ["v2", _, "blobs", name] if name in blobs:
                    return blobs[name], "application/octet-stream"
                case ["v2", _, "manifests", name] if name in manifests:
                    return manifests[name], MANIFEST
                case ["v2", name, "manifests", _] if name in served:
                    return served[name].manifest, MANIFEST
            return None

        def do_HEAD(self) -> None:
            content, kind = self._found() or (b"", "")
            self.send_response(200 if kind else 404)
            if kind:
                self.send_header("Content-Type", kind)
                self.send_header("Docker-Content-Digest", digest(content))
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(content)

        def do_GET(self) -> None:
            self.do_HEAD()

        def log_request(self, code: object = "-", size: object = "-") -> None:
            """Nothing: what is asked for can be read in the suite's output."""

    return Handler


def main(port: int, pause: Path) -> None:
    with ThreadingHTTPServer(("127.0.0.1", port), handler(images(pause))) as server:
        print("up", flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
