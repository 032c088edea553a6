"""Finds the API server and our credentials: from a kubeconfig, a pod's files, or a plain URL.

Promises: an Endpoint, or a KubeConfigError that says what is wrong, where, and how to mend it, without any secret.
Files that a kubeconfig names are not read here but by the transport, again and again, so that they may rotate.

Must not: run programs (exec and auth-provider entries are refused with what to do instead), or open a socket.
"""

import base64
import binascii
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

import yaml

from nodeward.neighbours.formats.yaml_faults import YAML_FAULTS
from nodeward.neighbours.kubernetes.errors import KubeConfigError
from nodeward.neighbours.sockets.kube_http import Endpoint

SERVICE_ACCOUNT_DIR = "/var/run/secrets/kubernetes.io/serviceaccount"
_MAX_BYTES = 1024 * 1024

Section = Mapping[object, object]


class Api(Protocol):
    """How settings name an API server: `url` with `token_file` and `ca_file`, else `kubeconfig`, else in-cluster."""

    @property
    def url(self) -> str: ...
    @property
    def token_file(self) -> str: ...
    @property
    def ca_file(self) -> str: ...
    @property
    def kubeconfig(self) -> str: ...


def endpoint_of(section: Api, environ: Mapping[str, str]) -> Endpoint:
    """The Endpoint that the settings' section `kube` means: its `url`, else its `kubeconfig`, else in-cluster."""
    if section.url:
        return Endpoint(_server(section.url, "kube.url"), token_file=section.token_file, ca_file=section.ca_file)
    if section.kubeconfig:
        return from_kubeconfig(Path(section.kubeconfig))
    return in_cluster(environ)


def in_cluster(environ: Mapping[str, str], folder: str = SERVICE_ACCOUNT_DIR) -> Endpoint:
    """The Endpoint of a pod with a service account."""
    host, port = environ.get("KUBERNETES_SERVICE_HOST", ""), environ.get("KUBERNETES_SERVICE_PORT", "")
    if not host or not port:
        raise KubeConfigError(
            "no API server: KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set, so this is no pod; "
            "name a file in kube.kubeconfig or an address in kube.url; "
            "on a host without API server: set kube.enabled to false"
        )
    for name in ("token", "ca.crt"):
        if not (Path(folder) / name).exists():
            raise KubeConfigError(
                f"no API server: {folder}/{name} is not there; give the pod a service account "
                "(automountServiceAccountToken) or name a file in kube.kubeconfig"
            )
    shown = f"[{host}]" if ":" in host else host
    return Endpoint(f"https://{shown}:{port}", ca_file=f"{folder}/ca.crt", token_file=f"{folder}/token")


def from_kubeconfig(path: Path) -> Endpoint:
    """The Endpoint of the current-context in the kubeconfig at `path`."""
    config = _load(path)
    name = _text(config, "current-context", str(path))
    if not name:
        raise KubeConfigError(f"{path}: no current-context; set it with kubectl config use-context")
    chosen = _named(config, "contexts", "context", name, path)
    cluster_name = _text(chosen, "cluster", f"{path}: contexts[{name}]")
    cluster = _named(config, "clusters", "cluster", cluster_name, path)
    user_name = _text(chosen, "user", f"{path}: contexts[{name}]")
    user = _named(config, "users", "user", user_name, path) if user_name else {}
    at_cluster, at_user = f"{path}: clusters[{cluster_name}]", f"{path}: users[{user_name}]"
    for way in ("exec", "auth-provider", "username"):
        if user.get(way):
            raise KubeConfigError(
                f"{at_user}.{way}: this way to log in is not supported; use token, tokenFile or a client certificate"
            )
    token_file = _file(user, "tokenFile", at_user, path)
    return Endpoint(
        base_url=_server(_text(cluster, "server", at_cluster), f"{at_cluster}.server"),
        ca_file=_file(cluster, "certificate-authority", at_cluster, path),
        ca_pem=_data(cluster, "certificate-authority-data", at_cluster),
        client_certificate_file=_file(user, "client-certificate", at_user, path),
        client_certificate_pem=_data(user, "client-certificate-data", at_user),
        client_key_file=_file(user, "client-key", at_user, path),
        client_key_pem=_data(user, "client-key-data", at_user),
        token_file=token_file,
        token="" if token_file else _text(user, "token", at_user),  # as client-go: the file wins
        server_name=_text(cluster, "tls-server-name", at_cluster),
        verify=cluster.get("insecure-skip-tls-verify") is not True,
    )


def _load(path: Path) -> Section:
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_BYTES + 1)
    except OSError as error:
        raise KubeConfigError(
            f"kubeconfig {path} cannot be read: {error.strerror}; correct the path (kube.kubeconfig) or the file's "
            "permissions"
        ) from error
    if len(data) > _MAX_BYTES:
        raise KubeConfigError(f"kubeconfig {path} is over {_MAX_BYTES} bytes: it is no kubeconfig")
    try:
        if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(data, yaml.SafeLoader)):
            raise KubeConfigError(f"kubeconfig {path}: YAML aliases are not read; write the value out")
        config = yaml.safe_load(data)
    except YAML_FAULTS as error:
        mark = getattr(error, "problem_mark", None)
        line = f" (line {mark.line + 1})" if mark is not None else ""
        raise KubeConfigError(f"kubeconfig {path}{line} is not YAML that can be read") from None
    if not isinstance(config, dict):
        raise KubeConfigError(f"kubeconfig {path} is no mapping; it should begin with apiVersion: v1, kind: Config")
    return config


def _named(config: Section, group: str, kind: str, name: str, path: Path) -> Section:
    """The `kind` mapping of the entry called `name` in the list `group`."""
    entries = config.get(group)
    names = []
    for entry in entries if isinstance(entries, list) else []:
        if not isinstance(entry, dict):
            continue
        names.append(str(entry.get("name")))
        found = entry.get(kind)
        if entry.get("name") == name and isinstance(found, dict):
            return found
    there = ", ".join(names) or "none"
    raise KubeConfigError(
        f"{path}: {group}[{name}].{kind} is not there (there is: {there}); correct the name or add it"
    )


def _text(section: Section, key: str, where: str) -> str:
    value = section.get(key)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise KubeConfigError(f"{where}.{key} is not text; put it in quotes")
    return value


def _file(section: Section, key: str, where: str, path: Path) -> str:
    """A file that the kubeconfig names, relative to the kubeconfig's folder."""
    name = _text(section, key, where)
    return str(path.parent / name) if name else ""


def _data(section: Section, key: str, where: str) -> str:
    text = _text(section, key, where)
    try:
        return base64.b64decode(text, validate=True).decode("ascii")
    except (binascii.Error, ValueError):
        raise KubeConfigError(f"{where}.{key} is not base64 of PEM text; write it with base64 -w0") from None


def _server(url: str, where: str) -> str:
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("https", "http") and parts.hostname and (parts.port is None or parts.port > 0)
        shown = f"{parts.scheme}://{parts.hostname}" if good else ""  # a user's name brings a password along
    except ValueError:
        good, shown = False, ""
    if not good or parts.query or parts.username:
        raise KubeConfigError(f"{where} {shown!r} is no address; write for example https://10.0.0.1:6443")
    return url.rstrip("/")
