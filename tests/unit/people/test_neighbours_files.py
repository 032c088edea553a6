"""Files of kubelet and of runtimes that are changed, and put back to the byte."""

import os
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner

from nodeward.cli.main import cli
from nodeward.features.settings import RelaySection
from nodeward.host.hostfs import OsFiles
from nodeward.neighbours.kata import handlers
from nodeward.neighbours.kubelet.endpoint_files import RUNTIME
from nodeward.programs.once import kubelet_endpoint as endpoint
from nodeward.programs.once import runtime_nri as nri
from nodeward.programs.once.kubelet_endpoint import Edit, EndpointFiles, PointError
from nodeward.programs.once.runtime_nri import write

RELAY = RelaySection()
IMAGES_TOO = RelaySection(image="/run/images.sock", image_listen="/run/nodeward/images.sock")
OURS = "unix:///run/nodeward/cri.sock"
THEIRS = "unix:///run/containerd/containerd.sock"
FILES = OsFiles()


@pytest.fixture
def node(tmp_path: Path) -> EndpointFiles:
    (tmp_path / "config.yaml").write_text(f"kind: KubeletConfiguration\n{RUNTIME}: {THEIRS}\n")
    return EndpointFiles(str(tmp_path / "config.yaml"), "", (str(tmp_path / "flags"), str(tmp_path / "none")))


def there_and_back(node: EndpointFiles, relay: RelaySection = RELAY) -> list[Edit]:
    """Points kubelet at the relay and back, looks that all is as before, and returns the edits of the way there."""
    folder = Path(node.config).parent
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    edits, _ = endpoint.to_relay(FILES, node, relay)
    endpoint.write(FILES, edits)
    assert endpoint.to_relay(FILES, node, relay) == ([], [f"kubelet's endpoint is {OURS} already"])
    endpoint.write(FILES, endpoint.to_runtime(FILES, node, relay)[0])
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before
    assert endpoint.to_runtime(FILES, node, relay)[0] == []
    return edits


def test_a_flag_counts_more(node: EndpointFiles) -> None:
    Path(node.flag_files[0]).write_text(f'ARGS="--container-runtime-endpoint={THEIRS} --v=2"\n')
    assert [edit.path for edit in there_and_back(node)] == [node.flag_files[0]]


def test_with_drop_ins_one_of_our_own_is_added(node: EndpointFiles, tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d/10-other.conf").write_text("kind: KubeletConfiguration\nmaxPods: 5\n")
    dropped = EndpointFiles(node.config, str(tmp_path / "d"), node.flag_files)
    assert [edit.path for edit in there_and_back(dropped)] == [str(tmp_path / "d" / endpoint.DROP_IN)]
    (tmp_path / "d/99-z.conf").write_text(f"kind: KubeletConfiguration\n{RUNTIME}: {THEIRS}\n")
    with pytest.raises(PointError, match=r"99-z.conf would count more"):
        endpoint.to_relay(FILES, dropped, RELAY)


def test_a_symbolic_link_stays_one(node: EndpointFiles, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("config.yaml")
    there_and_back(EndpointFiles(str(tmp_path / "link"), "", node.flag_files))
    assert (tmp_path / "link").is_symlink()


def images(node: EndpointFiles, endpoint: str = "unix:///run/images.sock") -> None:
    """kubelet asks this one for images."""
    with open(node.config, "a") as config:
        config.write(f"imageServiceEndpoint: {endpoint}\n")


def test_images_of_another_service_go_through_its_relay_or_stay(node: EndpointFiles) -> None:
    images(node)
    edits, said = endpoint.to_relay(FILES, node, RELAY)
    assert "imageServiceEndpoint: unix:///run/nodeward" not in edits[0].shown()
    assert said == [
        "images stay at unix:///run/images.sock, past the relay; relay.image and relay.image_listen would relay them"
    ]
    assert "+imageServiceEndpoint: unix:///run/nodeward/images.sock" in there_and_back(node, IMAGES_TOO)[0].shown()


@pytest.mark.parametrize("named", [False, True], ids=["by default", "by name"])
def test_images_of_the_runtime_are_not_led_where_another_services_are_relayed(node: EndpointFiles, named: bool) -> None:
    """The relay's first socket serves none then."""
    if named:
        images(node, THEIRS)
    with pytest.raises(PointError, match=r"no image could be pulled. .* set kubelet's imageServiceEndpoint to unix:"):
        endpoint.to_relay(FILES, node, IMAGES_TOO)


def test_each_socket_that_kubelet_is_led_to_is_asked(node: EndpointFiles) -> None:
    edits, _ = endpoint.to_relay(FILES, node, RELAY)
    assert endpoint.sockets(edits, RELAY, "relay") == ["/run/nodeward/cri.sock"]
    images(node)
    there, _ = endpoint.to_relay(FILES, node, IMAGES_TOO)
    assert endpoint.sockets(there, IMAGES_TOO, "relay") == ["/run/nodeward/cri.sock", "/run/nodeward/images.sock"]
    endpoint.write(FILES, there)
    back, _ = endpoint.to_runtime(FILES, node, IMAGES_TOO)
    assert endpoint.sockets(back, IMAGES_TOO, "runtime") == ["/run/containerd/containerd.sock", "/run/images.sock"]


def test_another_runtime_than_the_relays_is_refused(node: EndpointFiles) -> None:
    with pytest.raises(PointError, match=r"set relay.runtime to /run/containerd/containerd.sock in the settings"):
        endpoint.to_relay(FILES, node, RelaySection(runtime="/run/crio/crio.sock"))


def test_a_flag_that_stands_in_no_known_file_is_refused(node: EndpointFiles) -> None:
    with pytest.raises(PointError, match="kubelet runs with --container-runtime-endpoint, which none of"):
        endpoint.to_relay(FILES, EndpointFiles(node.config, "", node.flag_files, {RUNTIME: THEIRS}), RELAY)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"\xff", "is not UTF-8"),
        (b"a: [", "no YAML"),
        (b"[]", "not a mapping"),
        (b"#" * 2_000_000, "larger than the 1048576 bytes"),
        (None, "there is no such file; name kubelet's by --kubelet-config"),
    ],
)
def test_a_broken_configuration_is_named(node: EndpointFiles, content: bytes | None, why: str) -> None:
    Path(node.config).unlink()
    if content is not None:
        Path(node.config).write_bytes(content)
    with pytest.raises(PointError, match=f"config.yaml: .*{why}"):
        endpoint.to_relay(FILES, node, RELAY)


def test_where_one_file_cannot_be_written_the_other_is_as_it_was(node: EndpointFiles, tmp_path: Path) -> None:
    first = Edit(node.config, Path(node.config).read_text(), "changed\n")
    with pytest.raises(PointError, match="nothing was changed"):
        endpoint.write(FILES, [first, Edit(str(tmp_path / "nowhere/file"), None, "x")])
    assert THEIRS in Path(node.config).read_text()
    assert [path.name for path in tmp_path.iterdir()] == ["config.yaml"]


@pytest.mark.parametrize("stuck", [False, True], ids=["", "nor be put back"])
def test_where_the_second_file_cannot_be_replaced_the_first_is_put_back(
    node: EndpointFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stuck: bool
) -> None:
    """As where it is immutable or a mount: that shows only when it is tried."""
    flags, told = tmp_path / "flags.env", Path(node.config).read_text()
    flags.write_text("had\n")
    tried: list[str] = []

    def replace(source: str, place: str) -> None:
        tried.append(place)
        if place == str(flags) or (stuck and tried.count(place) > 1):
            raise PermissionError(1, "Operation not permitted", place)
        os.rename(source, place)

    monkeypatch.setattr(os, "replace", replace)
    what = f"changed all the same, put it back by hand: {node.config}$" if stuck else "nothing was changed$"
    with pytest.raises(PointError, match=f"flags.env: Operation not permitted; {what}"):
        endpoint.write(FILES, [Edit(node.config, told, "changed\n"), Edit(str(flags), "had\n", "other\n")])
    assert (Path(node.config).read_text() == told) is not stuck
    assert flags.read_text() == "had\n"


def test_a_file_that_changed_meanwhile_is_left_alone(node: EndpointFiles, tmp_path: Path) -> None:
    edits, _ = endpoint.to_relay(FILES, node, RELAY)
    Path(node.config).write_text("kind: KubeletConfiguration\n")
    with pytest.raises(PointError, match="somebody else has changed it meanwhile; nothing was changed"):
        endpoint.write(FILES, edits)
    assert Path(node.config).read_text() == "kind: KubeletConfiguration\n"
    assert [path.name for path in tmp_path.iterdir()] == ["config.yaml"]


def test_with_other_settings_on_the_way_back_what_stood_there_is_kept_and_told_of(node: EndpointFiles) -> None:
    endpoint.write(FILES, endpoint.to_relay(FILES, node, RelaySection(listen="/run/own.sock"))[0])
    pointed = Path(node.config).read_text()
    edits, said = endpoint.to_runtime(FILES, node, RELAY)
    assert edits == []
    assert "stands another endpoint than the settings' relay.listen; set it by hand" in said[0]
    assert THEIRS in pointed


def test_the_running_kubelet_says_where_its_files_are(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    files = OsFiles(str(tmp_path))
    with pytest.raises(PointError, match="no kubelets run here"):
        endpoint.places(files, "", "", ())
    process(tmp_path, 41, 0, b"kubelet\0--config=/k.yaml\0--config-dir\0/k.d\0--container-runtime-endpoint=/x\0")
    process(tmp_path, 40, 1000, b"kubelet\0--config=/theirs\0")
    assert endpoint.places(files, "", "", ()) == EndpointFiles("/k.yaml", "/k.d", endpoint.FLAG_FILES, {RUNTIME: "/x"})
    assert endpoint.places(files, "/given", "", ()) == EndpointFiles("/given")
    process(tmp_path, 42, 0, b"kubelet\0")
    with pytest.raises(PointError, match="2 kubelets run here"):
        endpoint.places(files, "", "", ())


def process(root: Path, pid: int, uid: int, command: bytes) -> None:
    """A process of the name `kubelet`."""
    folder = root / "proc" / str(pid)
    folder.mkdir()
    (folder / "comm").write_text("kubelet\n")
    (folder / "status").write_text(f"Name:\tkubelet\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\n")
    (folder / "cmdline").write_bytes(command)


TABLE = f'[plugins."{nri.PLUGIN}"]'
V, DISABLED = "version = 2\n", "  disable = false  # by `nodeward setup runtime`\n"
OF_17 = """version = 2
root = "/data"  # ours

[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "pause"
"""


@pytest.fixture(name="etc", autouse=True)
def _etc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(nri, "CONTAINERD", str(tmp_path / "containerd/config.toml"))
    monkeypatch.setattr(handlers, "_CONTAINERD", str(tmp_path / "containerd/config.toml"))
    monkeypatch.setattr(nri, "CRIO", str(tmp_path / "crio/crio.conf"))
    return tmp_path


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        pytest.param(OF_17, f"{OF_17}\n{TABLE}\n{DISABLED}", id="no table"),
        pytest.param(f"{V}{TABLE}\n  disable = true # no\n", f"{V}{TABLE}\n  disable = false\n", id="switched off"),
        pytest.param("# mine\n", f"# mine\n{V}\n{TABLE}\n{DISABLED}", id="nothing but a comment"),
        pytest.param(
            f"{V}[plugins]\n  [plugins.'{nri.PLUGIN}']\n    socket_path = '/s'\n[grpc]\n",
            f"{V}[plugins]\n  [plugins.'{nri.PLUGIN}']\n  disable = false\n    socket_path = '/s'\n[grpc]\n",
            id="a table without the word, in literal quotes",
        ),
    ],
)
def test_the_rest_of_the_file_stays(text: str, wanted: str) -> None:
    assert nri.enabled("f", text) == wanted


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("version = ", "is no TOML"),
        (f'{V}plugins = {{"{nri.PLUGIN}" = {{disable = true}}}}\n', "not understood"),
        (f'{V}[plugins]\n"{nri.PLUGIN}".disable = true\n', "not understood"),
        (f'{V}[plugins]\n"{nri.PLUGIN}" = 1\n', "is no table"),
        (f"{V}plugins = 1\n", "is no table"),
        (f"{V}disabled_plugins = ['{nri.PLUGIN}']\n", "take it out"),
        ("disabled_plugins = ['cri']\n", "has no `version = 2`"),
        ("version = 1\n", "has no `version = 2`"),
    ],
)
def test_what_cannot_be_said_in_a_file_is_not_written(text: str, why: str) -> None:
    with pytest.raises(PointError, match=why):
        nri.enabled("f", text)


def test_containerd_there_and_back(etc: Path) -> None:
    """In the file that decides; twice is once; undone to the byte; not undone over somebody's change."""
    files, config = OsFiles(), etc / "containerd/config.toml"
    part = etc / "containerd/conf.d/nri.toml"
    part.parent.mkdir(parents=True)
    config.write_text(f'imports = ["{part.parent}/*.toml"]\n{OF_17}')
    part.write_text(f"version = 2\n{TABLE}\ndisable = true\n")
    part.chmod(0o600)  # it may have a registry's password
    before = part.read_text()
    write(files, nri.prepare_containerd(files))
    assert tomllib.loads(part.read_text())["plugins"][nri.PLUGIN] == {"disable": False}
    assert nri.prepare_containerd(files) == []
    assert {path.stat().st_mode & 0o777 for path in part.parent.iterdir()} == {0o600}
    write(files, nri.undo_containerd(files))
    assert (part.read_text(), sorted(path.name for path in part.parent.iterdir())) == (before, ["nri.toml"])
    assert nri.undo_containerd(files) == []
    write(files, nri.prepare_containerd(files))
    part.write_text(f"{part.read_text()}# mine\n")
    with pytest.raises(PointError, match="was changed since"):
        nri.undo_containerd(files)


def test_an_imported_file_that_is_no_toml_is_said(etc: Path) -> None:
    config, part = etc / "containerd/config.toml", etc / "containerd/part.toml"
    config.parent.mkdir()
    config.write_text(f'imports = ["{part}"]\n{OF_17}')
    part.write_text("version =")
    with pytest.raises(PointError, match=r"part\.toml: is no TOML"):
        nri.prepare_containerd(OsFiles())


def test_a_containerd_without_a_file_gets_one_and_loses_it(etc: Path) -> None:
    files, config = OsFiles(), etc / "containerd/config.toml"
    write(files, nri.prepare_containerd(files))
    assert tomllib.loads(config.read_text()) == {"version": 2, "plugins": {nri.PLUGIN: {"disable": False}}}
    write(files, nri.undo_containerd(files))
    assert not config.exists()


def test_crio_gets_a_drop_in_unless_a_later_one_switches_it_off(etc: Path) -> None:
    files, folder = OsFiles(), etc / "crio/crio.conf.d"
    write(files, nri.prepare_crio(files))
    assert tomllib.loads((folder / nri.DROP_IN).read_text()) == {"crio": {"nri": {"enable_nri": True}}}
    assert nri.prepare_crio(files) == []
    write(files, nri.undo_crio(files))
    assert list(folder.iterdir()) == []
    (folder / "99-z.conf").write_text("[crio.nri]\nenable_nri = false\n")
    with pytest.raises(PointError, match=r"99-z\.conf counts more"):
        nri.prepare_crio(files)


def test_the_command(etc: Path) -> None:
    def ran(*words: str) -> tuple[int, str]:
        done = CliRunner().invoke(cli, ["setup", "runtime", *words])
        return done.exit_code, done.output

    assert ran() == (1, "Error: neither containerd nor CRI-O has settings here; name the runtime by --runtime\n")
    config = etc / "containerd/config.toml"
    config.parent.mkdir()
    config.write_text(OF_17)
    code, said = ran("--dry-run")
    assert (code, "+  disable = false" in said, config.read_text()) == (0, True, OF_17)
    code, said = ran()
    assert (code, said.splitlines()[-1]) == (0, "done; now: systemctl restart containerd (pods go on meanwhile)")
    assert ran()[1] == "NRI is on in the settings of containerd already\n"
    assert ran("--undo")[0] == 0
    assert config.read_text() == OF_17
    assert ran("--undo")[1] == "nothing to put back\n"
