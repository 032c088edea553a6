"""What the peers are made of: which folders, which Go packages, which flags, which programs come out.

A peer is a real program of somebody else's that our tests talk to, or one that our bench compares with. Every peer is
pinned by a go.mod and a go.sum of ours (below tests/peers/go, or bench), or by a Cargo.toml and a crates.sum (below
tests/peers/rust), so that a build today and one next year give the same peer. This module is data and a hash of it: a
changed source, version or flag gives another folder in the cache, and an old build is never taken for a new one. It
runs no command, so that asking whether a peer is there costs a few file reads.
"""

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

GO_FOLDER = Path(__file__).resolve().parent / "go"
RUST_FOLDER = Path(__file__).resolve().parent / "rust"
BENCH_FOLDER = Path(__file__).resolve().parents[2] / "bench"


@dataclass(frozen=True, slots=True)
class Step:
    packages: tuple[str, ...]
    output: str
    """Below the peer's folder; a trailing slash means one program a package."""
    flags: tuple[str, ...] = ()
    ldflags: str = "-s -w"
    cgo: bool = False

    def verb(self) -> tuple[str, ...]:
        return ("go", "build")


@dataclass(frozen=True, slots=True)
class TestsOf(Step):
    """One `go test -c`: the tests of a package as a program. (A class of its own: its name is in the fingerprint.)"""

    def verb(self) -> tuple[str, ...]:
        return ("go", "test", "-c")


@dataclass(frozen=True, slots=True)
class CProgramOf(Step):
    """A program in C out of a folder of a module, by gcc: `packages` are the module and the folder."""


@dataclass(frozen=True, slots=True)
class CrateOf(Step):
    """`cargo build` of a crate of ours: `packages` is the name of its program."""


@dataclass(frozen=True, slots=True)
class Recipe:
    name: str
    folders: tuple[str, ...]
    """Sources, below `root`; put together in one scratch folder."""
    steps: tuple[Step, ...]
    links: tuple[tuple[str, str], ...] = ()
    """(new name, program it points to)."""
    protos: tuple[tuple[str, str, str], ...] = ()
    """(file name in proto/, module, path inside the module): schemas that tests make stubs of."""
    own_caches: bool = False
    """The build's Go caches are too large to leave in the user's: use scratch ones and remove them."""
    root: Path = GO_FOLDER

    def sources(self) -> list[Path]:
        """Every file that goes into the build, in a stable order."""
        found = [path for folder in self.folders for path in sorted((self.root / folder).iterdir()) if path.is_file()]
        return [path for path in found if path.suffix in {".go", ".mod", ".sum", ".rs", ".toml"}]

    def places(self) -> list[str]:
        """The folders of its sources, below the repository's."""
        return [str((self.root / folder).relative_to(BENCH_FOLDER.parent)) for folder in self.folders]

    def of_rust(self) -> bool:
        return any(isinstance(step, CrateOf) for step in self.steps)

    def fingerprint(self) -> str:
        state = hashlib.sha256(repr((self.steps, self.links, self.protos)).encode())
        for path in self.sources():
            content = path.read_bytes()
            state.update(f"{path.name} {len(content)}\n".encode() + content)
        return state.hexdigest()[:16]

    def home(self) -> Path:
        """Where the finished peer lies; it is there if, and only if, the build succeeded."""
        return cache_folder() / f"{self.name}-{self.fingerprint()}"


def cache_folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "nodeward" / "peers"


def _nriside(release: str) -> Recipe:
    steps = (Step(packages=(".",), output="nriside"),)
    return Recipe(name=f"nriside-{release}", folders=("nriside", f"nriside-{release}"), steps=steps)


_CONTAINERD = "github.com/containerd/containerd/v2"
_CONTAINERD_1 = "github.com/containerd/containerd"
_SHIM = "containerd-shim-runc-v2"
_CNI = "github.com/containernetworking/plugins/plugins"
_COMPONENT = "k8s.io/component-base/version"
_CRIO_TAGS = (
    "containers_image_openpgp containers_image_ostree_stub exclude_graphdriver_btrfs exclude_graphdriver_devicemapper"
)
_KUBELET_APIS = "k8s.io/kubelet"
_KUBERNETES_NAMES = ("kubelet", "kube-apiserver", "kube-scheduler", "kube-controller-manager", "etcd", "cpuoracle")

RECIPES: dict[str, Recipe] = {
    recipe.name: recipe
    for recipe in (
        _nriside("0.12"),
        _nriside("0.8"),
        _nriside("0.11"),
        # Apart from Kubernetes, whose build takes minutes: a change here is built in seconds.
        Recipe("quantities", folders=("quantities",), steps=(Step(packages=(".",), output="quantities"),)),
        # The allocator of kube-scheduler alone: what it makes of a slice, a case a line.
        Recipe("draalloc", folders=("draalloc",), steps=(Step(packages=(".",), output="draalloc"),)),
        # A gRPC client in Go that knows a service by reflection alone.
        Recipe("grpcurl", ("grpcurl",), (Step(("github.com/fullstorydev/grpcurl/cmd/grpcurl",), "grpcurl"),)),
        # What people call a cluster by: charts, kustomizations, and kubectl of the release that Helm is made with.
        Recipe(
            name="helm",
            folders=("helm",),
            steps=(
                Step(packages=("helm.sh/helm/v3/cmd/helm", "sigs.k8s.io/kustomize/kustomize/v5"), output="bin/"),
                Step(packages=(".",), output="bin/kubectl"),
            ),
        ),
        # Kubelet's own client of PodResources, used as Kata uses it.
        Recipe("podresources", folders=("podresources",), steps=(Step(packages=(".",), output="podresources"),)),
        # What runtime-rs, Kata's runtime in Rust, places its processes with.
        Recipe("cgroupsrs", ("cgroupsrs",), (CrateOf(packages=("cgroupsrs",), output="cgroupsrs"),), root=RUST_FOLDER),
        Recipe("nristub", folders=("nri_stub",), steps=(Step(packages=(".",), output="nristub"),), root=BENCH_FOLDER),
        Recipe("cribench", folders=("cri_go",), steps=(Step(packages=(".",), output="cribench"),), root=BENCH_FOLDER),
        Recipe(
            name="containerd",
            folders=("containerd",),
            steps=(
                Step(
                    packages=tuple(f"{_CONTAINERD}/cmd/{program}" for program in ("containerd", _SHIM, "ctr")),
                    output="bin/",
                    ldflags=f"-s -w -X {_CONTAINERD}/version.Version=2.4.2",
                ),
                Step(
                    packages=(f"{_CNI}/main/bridge", f"{_CNI}/main/loopback", f"{_CNI}/ipam/host-local"),
                    output="cni/",
                ),
                Step(packages=(".",), output="bin/pause"),
                # runc needs cgo (its first steps in a namespace are C), and seccomp, since a kubelet asks for a profile
                # for every sandbox; so this build needs libseccomp-dev and pkg-config.
                Step(
                    packages=("github.com/opencontainers/runc",),
                    output="bin/",
                    flags=("-tags=seccomp netgo osusergo",),
                    ldflags="-s -w -extldflags -static",
                    cgo=True,
                ),
            ),
            protos=(("cri.proto", "k8s.io/cri-api", "pkg/apis/runtime/v1/api.proto"),),
        ),
        # The tests that containerd's own CRI is tested by; they can be pointed at any CRI socket.
        Recipe(
            name="cri-suite",
            folders=("cri-suite",),
            steps=(TestsOf(packages=(f"{_CONTAINERD}/integration",), output="bin/cri-suite"),),
        ),
        # No ctr, CNI plugins or runc of its own: tests/peers/containerd.py takes those of the newer one.
        Recipe(
            name="containerd-1.7",
            folders=("containerd-1.7",),
            steps=(
                Step(
                    packages=tuple(f"{_CONTAINERD_1}/cmd/{program}" for program in ("containerd", _SHIM)),
                    output="bin/",
                    ldflags=f"-s -w -X {_CONTAINERD_1}/version.Version=1.7.29",
                ),
            ),
        ),
        # Kata's Go runtime as far as it runs on the host: its libraries, called by a program of ours.
        Recipe(
            name="katahost",
            folders=("kata",),
            steps=(Step(packages=(".",), output="bin/katahost"),),
            links=(("bin/katart", "katahost"), ("bin/containerd-shim-kata-v2", "katahost")),
        ),
        # No cgo, so no seccomp and no AppArmor.
        Recipe(
            name="crio",
            folders=("crio",),
            steps=(
                Step(
                    packages=("github.com/cri-o/cri-o/cmd/crio",),
                    output="bin/",
                    flags=("-gcflags=all=-dwarf=false", f"-tags={_CRIO_TAGS}"),
                ),
                CProgramOf(packages=("github.com/cri-o/cri-o", "pinns/src"), output="bin/pinns"),
            ),
        ),
        Recipe(
            name="kubernetes",
            folders=("kubernetes",),
            steps=(
                Step(
                    packages=(".",),
                    output="bin/kubernetes",
                    flags=("-gcflags=all=-dwarf=false",),
                    ldflags=f"-s -w -X {_COMPONENT}.gitVersion=v1.37.0 -X {_COMPONENT}.gitMajor=1"
                    f" -X {_COMPONENT}.gitMinor=37 -X {_COMPONENT}.gitTreeState=clean",
                ),
            ),
            links=tuple((f"bin/{name}", "kubernetes") for name in _KUBERNETES_NAMES),
            protos=(
                ("deviceplugin.proto", _KUBELET_APIS, "pkg/apis/deviceplugin/v1beta1/api.proto"),
                ("podresources.proto", _KUBELET_APIS, "pkg/apis/podresources/v1/api.proto"),
                ("pluginregistration.proto", _KUBELET_APIS, "pkg/apis/pluginregistration/v1/api.proto"),
                ("dra.proto", _KUBELET_APIS, "pkg/apis/dra/v1/api.proto"),
            ),
            own_caches=True,
        ),
    )
}
DAILY = ("kubernetes", "containerd", "containerd-1.7", "nriside-0.12", "helm", "draalloc")
"""What `make test` needs; what takes longest is built first. The others are for `make nightly`."""
