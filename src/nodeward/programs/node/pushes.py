"""Where the daemon takes a cluster's configuration, where it gives containers CPUs and the settings say so."""

from functools import partial

from nodeward.features.cpus.settings import Driver
from nodeward.features.settings import Settings
from nodeward.features.wiring import Component
from nodeward.programs.node.assemble import Inside
from nodeward.settings.reload import SettingsSource


def pushes(settings: Settings, inside: Inside, source: SettingsSource | None) -> tuple[Component, ...]:
    """The component, or none."""
    path = settings.agent.config_socket
    if not path or settings.cpus.driver is not Driver.NRI or source is None or source.pushed is None:
        return ()
    from nodeward.neighbours.resmgr import config  # only where it is chosen

    push = partial(inside.reload.push, tell=inside.tell, unfit=lambda: inside.core.state.cpus.refused)
    return (("config-socket", lambda: config.serve(path, push)),)
