"""`nodeward kubelet` before a relay at work: kubelet's own words for its endpoints, there and back."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.component.relay.rig import WAIT_S, call, client_of, relay_process, runtime_at

NODEWARD = Path(sys.executable).parent / "nodeward"
WORDS = {
    "--flags-file": 'KUBELET_EXTRA_ARGS="--v=2 --container-runtime=remote --container-runtime-endpoint=unix://{runtime}'
    ' --image-service-endpoint=unix://{runtime}"\n',
    "--kubelet-config": "kind: KubeletConfiguration\ncontainerRuntimeEndpoint: unix://{runtime}  # ours\n"
    "imageServiceEndpoint: unix://{runtime}\nmaxPods: 10\n",
}
"""By option, what a file of that kind has: flags as of old, and configuration as of now."""


@pytest.mark.parametrize("kind", WORDS)
def test_a_kubelet_is_pointed_at_the_relay_and_back_byte_for_byte(tmp_path: Path, kind: str) -> None:
    listen, behind, file = tmp_path / "cri.sock", tmp_path / "runtime.sock", tmp_path / "kubelet"
    before = WORDS[kind].format(runtime=behind)
    file.write_text(before)

    def kubelet(target: str, *more: str) -> subprocess.CompletedProcess[str]:
        sets = ("--set", f"relay.listen={listen}", "--set", f"relay.runtime={behind}")
        command = [str(NODEWARD), "kubelet", target, kind, str(file), *sets, *more]
        return subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=False)

    with runtime_at(behind):
        alone = kubelet("relay")
        assert (alone.returncode, file.read_text()) == (1, before)
        assert "start the relay (systemctl enable --now nodeward-relay), or give --force; nothing" in alone.stderr
        with relay_process(listen, behind):
            tried = kubelet("relay", "--dry-run")
            assert (tried.returncode, file.read_text()) == (0, before)
            assert tried.stdout.endswith("\nnothing was changed; without --dry-run it is done\n")
            done = kubelet("relay")
            assert done.stdout.splitlines()[:-1] == tried.stdout.splitlines()[:-1], "the same as was shown"
            assert done.stdout.endswith("\ndone; now: systemctl restart kubelet\n")
            told = [line for line in file.read_text().splitlines() if not line.lstrip().startswith("#")]
            endpoints = re.findall(r"ndpoint(?:=|: )unix://([^\s\"#]+)", "\n".join(told))
            assert endpoints == [str(listen)] * 2
            with client_of(Path(endpoints[0])) as channel:
                assert call(channel, "Version", b"v") == b"v"
        back = kubelet("runtime")
        assert (back.returncode, file.read_text()) == (0, before), back.stderr
