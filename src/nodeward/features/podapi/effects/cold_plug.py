"""Whether somebody listens at the cold-plug socket."""

import errno
import socket

from nodeward.features.podapi.findings import ColdPlugFacts
from nodeward.features.settings import Settings
from nodeward.host.hostfs import HostFiles

NAME = "pod-resources.sock"
"""In the settings' `run_dir`."""
CONNECT_S = 2.0


def cold_plug(files: HostFiles, settings: Settings) -> ColdPlugFacts:
    """The socket by these settings. Asks it nothing."""
    path = settings.cold_plug.socket or f"{settings.run_dir}/{NAME}"
    try:
        files.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return ColdPlugFacts(settings.cold_plug.enabled, path, listens=False, kube=settings.kube.enabled)
    with socket.socket(socket.AF_UNIX) as asking:
        asking.settimeout(CONNECT_S)
        try:
            asking.connect(path)
        except OSError as error:
            listens = False if error.errno in (errno.ECONNREFUSED, errno.ENOENT, errno.ENOTSOCK) else None
        else:
            listens = True
    return ColdPlugFacts(settings.cold_plug.enabled, path, True, listens, settings.kube.enabled)
