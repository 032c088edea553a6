"""The program `nodeward` of the bundle, and `cri-resmgr`, its webhook, its agent and the agent's probe, links to it.

An interpreter can be told by `-m` which module to run, and `nodeward sim` starts its daemon so. In the bundle this
program stands in the interpreter's place, so it understands that one call.
"""

import os
import sys

CHILD = ["-m", "nodeward_sim.child"]

if __name__ == "__main__":
    if sys.argv[1:3] == CHILD:
        from nodeward_sim.child import main as child

        child(*sys.argv[3:])
    elif os.path.basename(sys.argv[0]) == "kubectl-nodeward":
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
