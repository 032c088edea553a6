"""The default sockets of CRI Resource Manager's relay and agent."""

from typing import Final

AGENT_SOCKET: Final = "/var/run/cri-resmgr/cri-resmgr-agent.sock"
"""The agent serves `v1.Agent` there."""
CONFIG_SOCKET: Final = "/var/run/cri-resmgr/cri-resmgr-config.sock"
"""The relay serves `v1.Config` there."""
