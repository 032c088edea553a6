"""The program `nodeward` of the bundle, and `cri-resmgr`, its webhook, its agent and the agent's probe, links to it."""

import os
import sys

if __name__ == "__main__":
    if os.path.basename(sys.argv[0]) == "kubectl-nodeward":
        from nodeward.cli.kubectl.plugin import main as kubectl

        kubectl()
    elif os.path.basename(sys.argv[0]) == "cri-resmgr":
        from nodeward.cli.cri_resmgr.relay import main as cri_resmgr

        cri_resmgr()
    elif os.path.basename(sys.argv[0]) == "cri-resmgr-webhook":
        from nodeward.cli.cri_resmgr.webhook import main as cri_resmgr_webhook

        cri_resmgr_webhook()
    elif os.path.basename(sys.argv[0]) == "cri-resmgr-agent":
        from nodeward.cli.agent import main as agent

        agent()
    elif os.path.basename(sys.argv[0]) == "cri-resmgr-agent-probe":
        from nodeward.cli.agent import probe

        probe()
    else:
        from nodeward.cli.main import main

        main()
