"""The domain `sandboxes`, one event at a time."""

from dataclasses import replace

from nodeward.engine.state.root import State
from nodeward.engine.state.sandboxes import Sandboxes, Vm
from nodeward.model import events as ev
from nodeward.model.decision import NOTHING, Decision
from nodeward.model.settings import Mode

KIND = "pod.limit"
"""A pod's memory or CPU limit (`Target.resource` is the file), where nobody else sets it."""


def step(state: State, event: ev.Event) -> tuple[Sandboxes, Decision]:
    """The slice after `event`, and what follows from it."""
    slice_ = state.sandboxes
    if state.settings.sandboxes.mode is Mode.OFF:
        return slice_, NOTHING
    match event:
        case ev.HandlersRead():
            return replace(slice_, handlers={one.name: one for one in event.handlers}), NOTHING
        case ev.VmsRead():
            vms = dict(slice_.vms)
            vms.update({one.sandbox: Vm(one) for one in event.readings})
            if event.there is not None:
                vms = {one: vms[one] for one in event.there if one in vms}
            return replace(slice_, vms=vms, version=event.version, driver=event.driver), NOTHING
    return slice_, NOTHING
