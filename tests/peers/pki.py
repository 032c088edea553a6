"""Client certificates for tests: an authority of one API server's, and users that it vouches for. Made by openssl."""

import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.patience import scaled

OPENSSL_TIMEOUT_S = scaled(60.0)
NEW = ("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "1")


@dataclass(frozen=True, slots=True)
class Certificate:
    certificate: Path
    key: Path


def openssl(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True, timeout=OPENSSL_TIMEOUT_S)


def authority(folder: Path) -> Certificate:
    made = Certificate(folder / "clients.crt", folder / "clients.key")
    openssl(*NEW, "-subj", "/CN=clients", "-keyout", str(made.key), "-out", str(made.certificate))
    return made


def client(folder: Path, by: Certificate, user: str) -> Certificate:
    made = Certificate(folder / f"{user}.crt", folder / f"{user}.key")
    signed = ("-CA", str(by.certificate), "-CAkey", str(by.key))
    openssl(*NEW, *signed, "-subj", f"/CN={user}", "-keyout", str(made.key), "-out", str(made.certificate))
    return made
