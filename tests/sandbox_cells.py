"""Every cell of profile, mode, cgroup version and driver: where the processes of a VM sandbox are, and who can show it.

The table is written by hand from Kata's page and sources. Unit tests hold `features.sandboxes.expected` to it, contract
tests the real libraries on this machine; a guest can do the same for the cells that it reaches.
"""

from dataclasses import dataclass

from nodeward.core.vms import CgroupDriver, Profile
from nodeward.features.sandboxes.expected import Paths

ID = "sb1"
UID = "6d1c"
FS = CgroupDriver.CGROUPFS
SYSTEMD = CgroupDriver.SYSTEMD
GO, RS, DOCUMENT = Profile.KATA_GO, Profile.KATA_RS, Profile.DOCUMENT

CGROUPS_PATH = {FS: f"/kubepods/pod{UID}/{ID}", SYSTEMD: f"kubepods-pod{UID}.slice:cri-containerd:{ID}"}
"""`linux.cgroupsPath` of the sandbox container as containerd writes it."""
POD = {FS: f"/kubepods/pod{UID}", SYSTEMD: f"/kubepods.slice/kubepods-pod{UID}.slice"}
SCOPE = f"{POD[SYSTEMD]}/cri-containerd-{ID}.scope"
LITERAL = f"/{CGROUPS_PATH[SYSTEMD]}"
"""One folder with this name at the root of every tree: a defect of Kata Go."""
OUTSIDE = f"/kata_overhead/{ID}"
RS_OUTSIDE = f"/kata.slice/kata-overhead.slice/runtime-rs-{ID}.scope"


@dataclass(frozen=True, slots=True)
class Cell:
    profile: Profile
    only: bool
    version: int
    driver: CgroupDriver
    sandbox: str
    shim: str
    virtiofsd: str
    vmm: str
    vcpu: str

    def __str__(self) -> str:
        return f"{self.profile.value}-{'only' if self.only else 'split'}-v{self.version}-{self.driver.value}"

    @property
    def paths(self) -> Paths:
        """What its cgroups are named after."""
        return Paths(ID, CGROUPS_PATH[self.driver], POD[self.driver])

    @property
    def overhead(self) -> str:
        """Empty where all is in the sandbox's cgroup."""
        if self.only:
            return ""
        return "/kata" if self.profile is DOCUMENT else self.shim


def _same(profile: Profile, version: int, driver: CgroupDriver, place: str) -> Cell:
    return Cell(profile, True, version, driver, place, place, place, place, place)


_KATA_FS = f"{POD[FS]}/kata_{ID}"
_RS_FS = f"{POD[FS]}/{ID}"
_RENAMED = f"{POD[SYSTEMD]}/kata_cri-containerd-{ID}.scope"

CELLS = (
    *(_same(GO, version, FS, _KATA_FS) for version in (1, 2)),
    *(_same(GO, version, SYSTEMD, SCOPE) for version in (1, 2)),
    Cell(GO, False, 1, FS, _KATA_FS, OUTSIDE, OUTSIDE, OUTSIDE, _KATA_FS),
    Cell(GO, False, 2, FS, _KATA_FS, OUTSIDE, OUTSIDE, _KATA_FS, _KATA_FS),
    Cell(GO, False, 1, SYSTEMD, LITERAL, OUTSIDE, OUTSIDE, OUTSIDE, LITERAL),
    Cell(GO, False, 2, SYSTEMD, LITERAL, OUTSIDE, OUTSIDE, LITERAL, LITERAL),
    *(_same(RS, version, FS, _RS_FS) for version in (1, 2)),
    *(_same(RS, version, SYSTEMD, SCOPE) for version in (1, 2)),
    Cell(RS, False, 1, FS, _RS_FS, OUTSIDE, OUTSIDE, OUTSIDE, _RS_FS),
    Cell(RS, False, 2, FS, _RS_FS, OUTSIDE, OUTSIDE, _RS_FS, _RS_FS),
    *(Cell(RS, False, version, SYSTEMD, SCOPE, RS_OUTSIDE, RS_OUTSIDE, SCOPE, SCOPE) for version in (1, 2)),
    *(_same(DOCUMENT, version, driver, f"{POD[driver]}/kata-sandbox-{ID}") for version in (1, 2) for driver in POD),
    *(
        Cell(DOCUMENT, False, version, driver, place, place, "/kata", vmm or place, place)
        for version, vmm in ((1, "/kata"), (2, ""))
        for driver, place in ((FS, _KATA_FS), (SYSTEMD, _RENAMED))
    ),
)

REACHED = tuple(cell for cell in CELLS if cell.profile is not DOCUMENT)
"""A real library tells the paths of these anywhere; what Kata's page describes, only `nodeward vms cgroup` does. It
really places processes on v1 with cgroupfs on the build machine, and on v2 with both drivers in the guest of
tests/vm/test_sandboxes.py; v1 with systemd runs nowhere."""


ODD_PATHS = (
    ("", GO, "/kata_vc"),
    (".", GO, "/vc/kata_."),
    ("a/b", GO, "/vc/a/kata_b"),
    ("a/b", RS, "/a/b"),
    ("/a/b/", GO, "/a/b/kata_b"),
    ("//a//b", RS, "/a/b"),
    ("x.slice::sb1", GO, "/x.slice/-sb1.scope"),
    ("x.slice::sb1", RS, "/x.slice/sb1.scope"),
    ("x.slice::sb1", DOCUMENT, "/x.slice/kata-sandbox-sb1"),
    ("a.slice:b:c:d", GO, "/vc/kata_a.slice:b:c:d"),
    ("a\\x2db.slice:p:i", RS, "/a\\x2db.slice/p-i.scope"),
)
"""cgroupsPath, profile -> the sandbox's cgroup in mode true. Held to the libraries as well."""
