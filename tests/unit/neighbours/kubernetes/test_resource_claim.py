"""What a driver reads of a ResourceClaim."""

import json

from nodeward.neighbours.kubernetes.resource_claim import claim

OURS = "cpus.nodeward.io"


def test_parameters_are_those_for_this_drivers_requests_and_the_class_comes_first() -> None:
    def config(source: str, number: int, driver: str = OURS, *requests: str) -> dict[str, object]:
        opaque = {"driver": driver, "parameters": {"number": number}}
        return {"source": source, "requests": list(requests), "opaque": opaque}

    configs = [
        config("FromClaim", 1, OURS, "cpus"),
        config("FromClass", 2),
        config("FromClass", 3, "gpu.example"),
        config("FromClaim", 4, OURS, "gpu"),
        config("FromClaim", 5, OURS, "cpus/small"),
    ]
    results = [
        {"request": "cpus/small", "driver": OURS, "pool": "n", "device": "cpus-numa-0"},
        {"request": "gpu", "driver": "gpu.example", "pool": "n", "device": "gpu-0"},
    ]
    one = {
        "metadata": {"uid": "u", "namespace": "shop", "name": "c"},
        "status": {"allocation": {"devices": {"results": results, "config": configs}}},
    }
    found = claim(json.dumps(one).encode(), OURS)
    assert found is not None
    assert [json.loads(text)["number"] for text in found.parameters] == [2, 1, 5]
