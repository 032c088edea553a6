"""The annotation with what containers request: its text, and what becomes of one that somebody else wrote."""

import json
from collections.abc import Mapping

import pytest

from nodeward.cli.cri_resmgr_webhook import pairs_of
from nodeward.edges.webhook import mapping
from nodeward.engine.admission.requests import MAX_TEXT, annotated
from nodeward.model.admission import Verdict
from nodeward.wire import json_patch
from nodeward.wire.admission_review import decode_review
from nodeward.wire.errors import WireError
from tests.unit.edges.webhook.rounds import Json, applied, container, notes, pod_of, review

NRI_PLUGINS, CRI_RM = "noderesource.dev/resources", "intel.com/resources"
APP = container("app", resources={"requests": {"memory": "1Gi", "cpu": "2"}, "limits": {"cpu": "2500m"}})
PLAIN = '"plain":{}'
SAID = '"app":{"limits":{"cpu":"2500m"},"requests":{"cpu":"2","memory":"1Gi"}}'


def answered(pod: Json, key: str, operation: str = "CREATE", sub_resource: str = "") -> tuple[Json, Verdict]:
    request = decode_review(json.dumps(review(pod, operation, sub_resource)).encode(), 1 << 24)
    verdict = annotated(mapping.operation(request), mapping.pod_asked(request), key)
    assert request.object is not None
    operations: list[Json] = json.loads(json_patch.encode(mapping.patch(request.object, verdict)))
    return notes(applied(pod, operations)), verdict


@pytest.mark.parametrize(
    ("key", "init", "text"),
    [
        (NRI_PLUGINS, (), f'{{"containers":{{{SAID},{PLAIN}}}}}'),
        (CRI_RM, (), f'{{"initContainers":{{}},"containers":{{{SAID},{PLAIN}}}}}'),
        (
            NRI_PLUGINS,
            (container("setup", {"cpu": "1"}), container("side", restartPolicy="Always")),
            '{"initContainers":{"setup":{"limits":{"cpu":"1"},"requests":{"cpu":"1"}},"side":{}},'
            f'"containers":{{{SAID},{PLAIN}}}}}',
        ),
    ],
    ids=["nri-plugins", "CRI Resource Manager", "with init containers and sidecars"],
)
@pytest.mark.parametrize("operation", ["CREATE", "UPDATE"])
def test_the_text_is_upstreams_whatever_was_there(operation: str, key: str, init: tuple[Json, ...], text: str) -> None:
    spec: Json = {"initContainers": list(init)} if init else {}
    lie: Json = {key: '{"containers":{"app":{"requests":{"cpu":"9"}}}}', "mine": "stays"}

    found, verdict = answered(made(spec, lie), key, operation)

    assert found == {key: text, "mine": "stays"}
    assert not verdict.refusals
    assert answered(made(spec, None), key)[0] == {key: text}
    assert answered(made(spec, found), key, operation)[1] == Verdict()


def made(spec: Json, annotations: Mapping[str, object] | None) -> Json:
    pod = pod_of(container("plain"), APP, annotations=annotations)
    return pod | {"spec": {"containers": [container("plain"), APP], **spec}}


def test_no_pod_is_lost_for_a_text_that_is_too_long() -> None:
    crowd = [container(f"container-number-{one:04}", {"cpu": "1"}) for one in range(MAX_TEXT // 60)]

    found, verdict = answered(pod_of(*crowd, annotations={NRI_PLUGINS: "{}"}), NRI_PLUGINS)

    assert found == {}
    assert "is not written" in verdict.warnings[0]


@pytest.mark.parametrize("sub_resource", ["ephemeralcontainers", "resize"])
def test_a_subresource_changes_no_annotation(sub_resource: str) -> None:
    assert answered(pod_of(APP), NRI_PLUGINS, "UPDATE", sub_resource) == ({}, Verdict())


def test_the_options_of_cri_resource_managers_webhook_are_settings() -> None:
    pairs = pairs_of(["-cert-file=/c/svc.crt", "--key-file", "/c/svc.key", "-port=8443"])

    assert pairs == {
        "webhook.port": "8443",
        "webhook.annotate": '["intel.com/resources"]',
        "webhook.certificate_file": "/c/svc.crt",
        "webhook.key_file": "/c/svc.key",
    }
    assert pairs_of(["-h"]) is None
    for words, said in (
        (["-cert-file=/c"], "-key-file: is missing"),
        (["x"], "'x' is no option"),
        (["-ports=1"], "port"),
    ):
        with pytest.raises(WireError, match=said):
            pairs_of(words)
