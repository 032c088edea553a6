"""How NRI is switched on in the runtimes' files, and back."""

import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner

from nodeward.aio.hostfs import OsFiles
from nodeward.app.doctor import runtime_files
from nodeward.app.tools import runtime_nri as nri
from nodeward.app.tools.kubelet_endpoint import PointError
from nodeward.app.tools.runtime_nri import write
from nodeward.cli.main import cli

TABLE = f'[plugins."{nri.PLUGIN}"]'
V, OURS = "version = 2\n", "  disable = false  # by `nodeward runtime prepare`\n"
OF_17 = """version = 2
root = "/data"  # ours

[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "pause"
"""


@pytest.fixture(name="etc", autouse=True)
def _etc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Both runtimes' folders, elsewhere."""
    monkeypatch.setattr(nri, "CONTAINERD", str(tmp_path / "containerd/config.toml"))
    monkeypatch.setattr(runtime_files, "_CONTAINERD", str(tmp_path / "containerd/config.toml"))
    monkeypatch.setattr(nri, "CRIO", str(tmp_path / "crio/crio.conf"))
    return tmp_path


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        pytest.param(OF_17, f"{OF_17}\n{TABLE}\n{OURS}", id="no table"),
        pytest.param(f"{V}{TABLE}\n  disable = true # no\n", f"{V}{TABLE}\n  disable = false\n", id="switched off"),
        pytest.param("# mine\n", f"# mine\n{V}\n{TABLE}\n{OURS}", id="nothing but a comment"),
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
    before = part.read_text()
    write(files, nri.prepare_containerd(files))
    assert tomllib.loads(part.read_text())["plugins"][nri.PLUGIN] == {"disable": False}
    assert nri.prepare_containerd(files) == []
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
        done = CliRunner().invoke(cli, ["runtime", "prepare", *words])
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
