"""CRI Resource Manager's command lines, of both generations, in our words."""

import pytest

from nodeward.app import cri_resmgr
from nodeward.app.cri_resmgr import Chosen, CriResmgrError

CONTAINERD = cri_resmgr.RUNTIMES[1]


def choose(line: str, files: dict[str, str] | None = None, sockets: tuple[str, ...] = (CONTAINERD,)) -> Chosen:
    return cri_resmgr.choose(line.split(), {}, (files or {}).__getitem__, sockets.__contains__)


def test_the_walk_of_its_first_readme() -> None:
    chosen = choose("-policy null -dump reset,full:.* -dump-file /tmp/cri.dump")
    assert chosen.pairs == {
        "relay.listen": "/var/run/cri-resmgr/cri-resmgr.sock",
        "relay.runtime": CONTAINERD,
        "dump.rules": "reset,full:.*",
        "dump.file": "/tmp/cri.dump",
    }
    assert chosen.notes == [f"no --runtime-socket: {CONTAINERD} is there"]


@pytest.mark.parametrize(
    ("sockets", "said"),
    [
        ((CONTAINERD, cri_resmgr.RUNTIMES[0]), f"{cri_resmgr.RUNTIMES[0]} is there"),
        (cri_resmgr.RUNTIMES[2:], f"{cri_resmgr.RUNTIMES[2]} is there"),
        ((), f"{CONTAINERD} is waited for; none of {', '.join(cri_resmgr.RUNTIMES)} is there"),
    ],
)
def test_without_a_runtime_the_first_that_is_there_is_taken_and_said(sockets: tuple[str, ...], said: str) -> None:
    assert choose("", sockets=sockets).notes == [f"no --runtime-socket: {said}"]


def test_the_final_options_and_its_files() -> None:
    line = "--runtime-socket unix:///run/r.sock --relay-socket=/run/l.sock --force-config /c --pid-file /run/p"
    files = {"/c": "policy:\n  Active: none\ndump:\n  Config: 'short:.*'\n  File: /d\nlogger:\n  Debug: on:*\n"}
    chosen = choose(f"{line} --disable-ui", files)
    assert chosen.pairs == {
        "relay.listen": "/run/l.sock",
        "relay.runtime": "/run/r.sock",
        "dump.rules": "short:.*",
        "dump.file": "/d",
    }
    assert (chosen.pid_file, chosen.log_level) == ("/run/p", "debug")
    assert chosen.notes == ["--disable-ui: has no meaning here: there is no web page (command line)"]


def test_a_file_of_either_generation_is_told_by_its_content_and_stands_in_its_place() -> None:
    files = {"/old": "policy = none\ndump = reset\n  file = /a\n", "/new": "dump: {File: /b}\n"}
    assert choose("-dump-file /x -config /old", files).pairs["dump.file"] == "/a"
    assert choose("-config /old -dump-file /x", files).pairs["dump.file"] == "/x"
    assert choose("-config /old -config /new", files).pairs["dump.file"] == "/b"
    assert choose("-config /old -dump full:.*", files).pairs["dump.rules"] == "reset,full:.*"


def test_images_of_another_service_have_a_socket_of_their_own() -> None:
    chosen = choose("--image-socket /run/images.sock")
    assert chosen.pairs["relay.image"] == "/run/images.sock"
    assert chosen.pairs["relay.image_listen"] == "/var/run/cri-resmgr/cri-resmgr-image.sock"
    assert any("point kubelet's image service at" in note for note in chosen.notes)
    assert any("answered by the runtime" in note for note in choose("--image-socket -").notes)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("-policy topology-aware", "'topology-aware' comes with Nodeward's CPU policies"),
        ("-policy null -reserved-resources cpu=1", "--reserved-resources: comes with Nodeward's CPU policies"),
        ("-dumpfile /x", "did you mean --dump-file?"),
        ("-logger-level loud", "'loud' is none of debug, info, warn"),
        ("-dump-file cri.dump", "'cri.dump' is no absolute path"),
        ("topology-aware", "is no option"),
        ("-config /bad", "is no YAML"),
        ("-config /list", "is neither a file of `option = value` lines nor YAML"),
    ],
)
def test_what_cannot_be_followed_is_refused_with_option_and_remedy(line: str, said: str) -> None:
    with pytest.raises(CriResmgrError) as raised:
        choose(line, {"/bad": "dump: {", "/list": "[a: b]"})
    assert said in str(raised.value)


@pytest.mark.parametrize(
    ("line", "asked"),
    [("-h", "help"), ("help", "help"), ("-print-config", "print-config"), ("--list-policies", "list-policies")],
)
def test_what_is_only_asked(line: str, asked: str) -> None:
    assert choose(line).asked == asked


@pytest.mark.parametrize("name", [name for name in cri_resmgr.SWITCHES if "config" not in name.split("-")])
def test_every_option_is_served_remarked_on_or_refused(name: str) -> None:
    values = {"logger-level": " debug", "policy": " null"}
    line = f"-{name}" if cri_resmgr.SWITCHES[name] else f"-{name}{values.get(name, ' /x')}"
    if name in cri_resmgr._REFUSED:
        with pytest.raises(CriResmgrError, match="not built yet"):
            choose(line)
    else:
        choose(line)
