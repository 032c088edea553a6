"""The settings of the webhook."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class WebhookSection:
    """The admission webhook, `nodeward webhook`: where it listens, its certificate, its patience."""

    address: str = ""
    port: int = 9443
    certificate_file: str = "/etc/nodeward/tls/tls.crt"
    key_file: str = "/etc/nodeward/tls/tls.key"
    required_plugin: str = ""
    annotate: tuple[str, ...] = ()
    max_connections: int = 2000
    request_s: float = 10.0
    close_s: float = 10.0
