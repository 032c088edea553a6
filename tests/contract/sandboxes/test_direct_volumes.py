"""Direct volumes: what Nodeward writes, Kata's own Go library reads, and the other way round."""

import json
from pathlib import Path

import pytest

from nodeward.host.hostfs import OsFiles
from nodeward.neighbours.kata import volumes
from nodeward.neighbours.kata.direct_volume import MountInfo
from nodeward.neighbours.kata.volumes import VolumeFileError
from tests.peers.katahost import kata_volumes

CSI = "/var/lib/kubelet/pods/0a7a6a22-4fc3-4a63-9d5b-c6a0c2ad7f2f/volumes/kubernetes.io~csi/pvc-1/mount"
INFO = MountInfo("/dev/sdb", "ext4", "block", {"fsGroup": "1000", "fsGroupChangePolicy": "Always"}, ("ro", "noatime"))
FILES = OsFiles()


@pytest.mark.parametrize("path", [CSI, "/a", "/data/??>>/größe", "/" + "x" * 188])
def test_kata_reads_what_is_written_and_takes_it_and_we_see_it_taken(tmp_path: Path, path: str) -> None:
    folder = tmp_path / "volumes"
    written = Path(volumes.write(FILES, path, INFO, str(folder)))
    on = {"path": path}
    calls = [{"call": "read"}, {"call": "sandbox"}, {"call": "record", "sandbox": "sb1"}, {"call": "sandbox"}]
    read, none, recorded, taken = kata_volumes(folder, [call | on for call in calls])

    assert (written.stat().st_mode & 0o777, written.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert (read.error, read.info) == ("", json.loads(written.read_text()))
    assert "no sandbox found" in none.error
    assert (recorded.error, taken.sandbox) == ("", "sb1")
    found = volumes.of(FILES, path, str(folder))
    assert found is not None
    assert (found.path, found.info, found.sandboxes, found.faults) == (path, INFO, ("sb1",), ())
    for change in (
        lambda: volumes.write(FILES, path, INFO, str(folder)),
        lambda: volumes.remove(FILES, path, str(folder)),
    ):
        with pytest.raises(VolumeFileError, match="taken by sandbox sb1"):
            change()
    assert volumes.remove(FILES, path, str(folder), force=True)
    assert "no such file" in kata_volumes(folder, [{"call": "read", **on}])[0].error


def test_what_kata_writes_is_read_and_what_it_lets_pass_is_told(tmp_path: Path) -> None:
    good = {"volume-type": "block", "device": "/dev/sdb", "fstype": "ext4"}
    bad = {**good, "fstype": "", "metadata": {"encryptionKey": "k"}}
    infos = {"/good": json.dumps(good), "/bad": json.dumps(bad)}
    added = kata_volumes(tmp_path, [{"call": "add", "path": path, "info": info} for path, info in infos.items()])
    found = {one.path: one for one in volumes.listed(FILES, str(tmp_path))}

    assert [one.error for one in added] == ["", ""]
    assert (found["/good"].info, found["/good"].faults) == (MountInfo("/dev/sdb", "ext4"), ())
    assert [one.partition(":")[0] for one in found["/bad"].faults] == ["fstype", "metadata.encryptionKey"]
    assert volumes.remove(FILES, "/good", str(tmp_path))
    assert "no such file" in kata_volumes(tmp_path, [{"call": "read", "path": "/good"}])[0].error
