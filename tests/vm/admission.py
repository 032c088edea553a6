"""What stands before a pod in the chain: the shipped policies, and the shipped webhook as a program on the host's side.

The objects are written to a file that the guest's cases read and create, since the cases before them want an API
server without admission of ours. Nothing is changed in them but where the API server finds the webhook: by a URL of the
loopback that it shares with the webhook, in place of the Service, which nothing here could route.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from nodeward.features.admission.door.server import PATH
from tests.component.webhook.support import install, make_pki, port_of, program
from tests.real.test_policies import NAMES, SUBRESOURCES, policy
from tests.real.test_webhook import at_the_loopback
from tests.rigs.cluster import manifests, place_of

FILE: Final = "admission.json"


@contextmanager
def running_webhook(folder: Path) -> Iterator[Path]:
    """`nodeward webhook` for as long as the block; the file of paths and objects that an administrator would apply."""
    pki = make_pki(folder)
    install(pki, "first", pki / "tls")
    with program(pki / "tls") as webhook:
        (configuration,) = manifests("webhook/webhook.yaml")
        url = f"https://127.0.0.1:{port_of(webhook)}{PATH}"
        at_the_loopback(configuration, url, (pki / "ca.crt").read_bytes())
        applied = [
            *manifests("webhook/namespace.yaml"),
            *manifests("policies/parameters.yaml"),
            *(one for name in (*NAMES, SUBRESOURCES) for one in policy(name)),
            configuration,
        ]
        file = folder / FILE
        file.write_text(json.dumps([(place_of(one), one) for one in applied]))
        yield file
