"""The settings of the webhook."""

from dataclasses import dataclass

from nodeward.core.setting import setting


@dataclass(frozen=True, slots=True)
class WebhookSection:
    """The admission webhook, `nodeward webhook`: where it listens, its certificate, its patience."""

    address: str = setting("", "Where `nodeward webhook` listens. Empty: every address.")
    port: int = setting(9443, "Its port; 0 takes a free one and the log names it.", 0, 65535)
    certificate_file: str = setting("/etc/nodeward/tls/tls.crt", "Its certificate, PEM; followed.", path=True)
    key_file: str = setting(
        "/etc/nodeward/tls/tls.key", "The certificate's key, PEM, without a password; followed.", path=True
    )
    required_plugin: str = setting(
        "",
        "An NRI plugin, such as `nodeward`, that pods with limits must require. Empty: the annotation for it is left "
        "alone.",
    )
    annotate: tuple[str, ...] = setting(
        (), "Annotations with requests and limits on every pod: `noderesource.dev/resources`, `intel.com/resources`."
    )
    max_connections: int = setting(
        2000, "Connections at once, some 35 KiB each; fewer where open files are limited.", 16, 100_000
    )
    request_s: float = setting(
        10.0, "Seconds for a request to arrive, and for its answer to be taken.", 0.5, 60, "seconds"
    )
    close_s: float = setting(10.0, "Seconds for what has begun when the webhook stops.", 0, 600, "seconds")
