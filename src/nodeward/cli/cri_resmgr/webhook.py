"""`cri-resmgr-webhook`: the annotating webhook under CRI Resource Manager's name and with its options.

That webhook answers at every path, and its configuration names none, so here / is the path of `intel.com/resources`.
"""

import os
import sys
from collections.abc import Mapping, Sequence

from nodeward.cli import exits
from nodeward.core.annotations import CRI_RM_RESOURCES
from nodeward.core.errors import NodewardError, WireError
from nodeward.programs.cri_resmgr import go_flags

HELP = """\
cri-resmgr-webhook: CRI Resource Manager's annotating webhook, by Nodeward. Options have one dash or two.

  -port PORT                 where it listens, at every address (443)
  -cert-file FILE            its certificate, PEM
  -key-file FILE             the certificate's private key, PEM

It writes the annotation intel.com/resources: each container's requests and limits. Reviews go to / or to
/intel.com/resources. Nodeward's own settings come from the environment, as NODEWARD_WEBHOOK__MAX_CONNECTIONS.

Example, as in CRI Resource Manager's manifest:
  cri-resmgr-webhook -cert-file=/etc/tls/svc.crt -key-file=/etc/tls/svc.key -port=8443
"""
_SETTINGS = {"port": "webhook.port", "cert-file": "webhook.certificate_file", "key-file": "webhook.key_file"}
_SWITCHES = {"h": True, "help": True, **dict.fromkeys(_SETTINGS, False)}


def pairs_of(words: Sequence[str]) -> Mapping[str, str] | None:
    """The settings by dotted path that these options mean; None where help is asked for. WireError for others."""
    found, rest = go_flags.parse(words, _SWITCHES)
    if any(one.name in ("h", "help") for one in found):
        return None
    if rest:
        raise WireError("command line", f"{rest[0][:64]!r} is no option; see cri-resmgr-webhook -h")
    pairs = {"webhook.port": "443", "webhook.annotate": f'["{CRI_RM_RESOURCES}"]'}
    pairs |= {_SETTINGS[one.name]: one.value for one in found}
    for name in ("cert-file", "key-file"):
        if not pairs.get(_SETTINGS[name]):
            raise WireError(f"option -{name}", f"is missing: the API server calls by TLS only; write -{name}=FILE")
        pairs[_SETTINGS[name]] = os.path.abspath(pairs[_SETTINGS[name]])
    return pairs


def main() -> None:
    """The console script. Errors that a person can act on end with 1 and one clear text."""
    try:
        pairs = pairs_of(sys.argv[1:])
        if pairs is None:
            print(HELP, end="")
            return
        from nodeward.host import process
        from nodeward.host.clock import SystemClock
        from nodeward.programs import webhook
        from nodeward.settings import load as settings

        named = {path: f"option -{name}" for name, path in _SETTINGS.items()}
        chosen = settings.load(None, os.environ, pairs, named)
        process.set_up_logs("info")
        settings.warn(os.environ)
        process.run(webhook.run(chosen, SystemClock(), CRI_RM_RESOURCES))
    except (NodewardError, OSError) as error:
        print(f"cri-resmgr-webhook: {error}", file=sys.stderr)
        sys.exit(exits.FAILED)
