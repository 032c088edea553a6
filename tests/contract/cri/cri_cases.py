"""What a CRI client may expect of a container runtime, and the relay of both. A case that differs by release says so
itself.
"""

from collections.abc import Callable

from nodeward.contracts import cri_pb2 as cri
from nodeward_sim.doubles.cri_runtime import IMAGE
from tests.component.relay.rig import wait_for
from tests.contract.cri.sides import Client, containers, create, creation, pod, pods, run_pod, start, stop, within

Case = Callable[[Client], None]
CASES: dict[str, Case] = {}
NOBODY = "0" * 64


def case(played: Case) -> Case:
    CASES[played.__name__.replace("_", "-")] = played
    return played


def status_of(client: Client, container_id: str) -> cri.ContainerStatus:
    request = cri.ContainerStatusRequest(container_id=container_id)
    return client.ask("ContainerStatus", request, cri.ContainerStatusResponse).status


def pod_status(client: Client, pod_id: str) -> cri.PodSandboxStatus:
    request = cri.PodSandboxStatusRequest(pod_sandbox_id=pod_id)
    return client.ask("PodSandboxStatus", request, cri.PodSandboxStatusResponse).status


def stop_pod(client: Client, pod_id: str) -> None:
    """Stops a sandbox. containerd 2 answers before its own monitor has noted the end (internal/cri/server/events.go,
    startSandboxExitMonitor), and until then it lists the sandbox as ready and creates containers in it."""
    client.ask("StopPodSandbox", cri.StopPodSandboxRequest(pod_sandbox_id=pod_id), cri.StopPodSandboxResponse)
    ended = (pod_id, cri.SANDBOX_NOTREADY)
    wait_for(lambda: ended in [(one.id, one.state) for one in pods(client)], f"end of {pod_id} in the list")


def remove_pod(client: Client, pod_id: str) -> None:
    client.ask("RemovePodSandbox", cri.RemovePodSandboxRequest(pod_sandbox_id=pod_id), cri.RemovePodSandboxResponse)


def remove(client: Client, container_id: str) -> None:
    client.ask("RemoveContainer", cri.RemoveContainerRequest(container_id=container_id), cri.RemoveContainerResponse)


def running(client: Client, name: str) -> tuple[str, str]:
    pod_id = run_pod(client, name)
    container_id = create(client, pod_id, name)
    start(client, container_id)
    return pod_id, container_id


# ---- the runtime itself


@case
def version_says_which_runtime_and_which_cri(client: Client) -> None:
    said = client.ask("Version", cri.VersionRequest(), cri.VersionResponse)
    assert (said.version, said.runtime_name, said.runtime_api_version) == ("0.1.0", "containerd", "v1")
    assert said.runtime_version == client.side.generation.runtime_version


@case
def status_says_that_runtime_and_network_are_ready(client: Client) -> None:
    said = client.ask("Status", cri.StatusRequest(), cri.StatusResponse).status
    ready = {one.type: one.status for one in said.conditions}
    assert (ready["RuntimeReady"], ready["NetworkReady"]) == (True, True)


@case
def a_method_or_a_service_that_is_not_there_is_unimplemented(client: Client) -> None:
    assert client.refused("BrewTea", b"") == "UNIMPLEMENTED"
    assert client.refused("v1.TeaService/BrewTea", b"") == "UNIMPLEMENTED"
    assert client.refused("v2.RuntimeService/Version", b"") == "UNIMPLEMENTED"


@case
def bytes_that_are_no_message_are_an_internal_error(client: Client) -> None:
    for method in ("CreateContainer", "RunPodSandbox", "ListContainers", "StopContainer"):
        assert client.refused(method, b"\xff\xff\xff\xff") == "INTERNAL", method


@case
def fields_that_cri_does_not_have_are_no_fault(client: Client) -> None:
    pod_id = run_pod(client, "marked")
    request = cri.StopPodSandboxRequest(pod_sandbox_id=pod_id).SerializeToString() + b"\xfa\x7f\x03any"
    client.ask("StopPodSandbox", request, cri.StopPodSandboxResponse)
    assert pod_status(client, pod_id).state == cri.SANDBOX_NOTREADY


@case
def the_older_cri_is_answered_alike_where_it_is_served(client: Client) -> None:
    pod_id, container_id = running(client, "older")
    served = "v1alpha2" in client.side.generation.versions
    assert client.refused("v1alpha2.RuntimeService/Version", b"") == ("OK" if served else "UNIMPLEMENTED")
    if served:
        older = "v1alpha2.RuntimeService"
        said = client.ask(f"{older}/Version", b"", cri.VersionResponse)
        assert (said.runtime_name, said.runtime_api_version) == ("containerd", "v1alpha2")
        listed = client.ask(f"{older}/ListContainers", b"", cri.ListContainersResponse).containers
        assert [(one.id, one.pod_sandbox_id, one.state) for one in listed] == [
            (container_id, pod_id, cri.CONTAINER_RUNNING)
        ]
        assert client.refused(f"{older}/StopPodSandbox", cri.StopPodSandboxRequest(pod_sandbox_id=pod_id)) == "OK"
        assert client.refused(f"{older}/GetContainerEvents", b"") == "UNIMPLEMENTED"


# ---- sandboxes


@case
def a_pod_is_listed_as_it_was_described(client: Client) -> None:
    pod_id, asked = run_pod(client, "described", attempt=3), pod(client.side, "described", 3)
    (listed,), status = pods(client), pod_status(client, pod_id)
    for said in (listed, status):
        assert (said.id, said.metadata, said.state) == (pod_id, asked.metadata, cri.SANDBOX_READY)
        assert (dict(said.labels), dict(said.annotations)) == (dict(asked.labels), dict(asked.annotations))
    assert listed.created_at == status.created_at > 0


@case
def a_pod_of_the_same_name_and_attempt_is_refused_until_it_is_removed(client: Client) -> None:
    pod_id = run_pod(client, "twice")
    again, taken = cri.RunPodSandboxRequest(config=pod(client.side, "twice")), client.side.generation.taken.value
    assert client.refused("RunPodSandbox", again) == taken
    stop_pod(client, pod_id)
    assert client.refused("RunPodSandbox", again) == taken
    other = run_pod(client, "twice", attempt=1)
    assert sorted(one.id for one in pods(client)) == sorted((pod_id, other))
    remove_pod(client, pod_id)
    run_pod(client, "twice")


@case
def a_stopped_pod_is_listed_as_not_ready_and_may_be_stopped_again(client: Client) -> None:
    pod_id, container_id = running(client, "stopped")
    for _ in range(2):
        stop_pod(client, pod_id)
        assert [(one.id, one.state) for one in pods(client)] == [(pod_id, cri.SANDBOX_NOTREADY)]
    assert pod_status(client, pod_id).state == cri.SANDBOX_NOTREADY
    assert [(one.id, one.state) for one in containers(client)] == [(container_id, cri.CONTAINER_EXITED)]


@case
def a_pod_that_is_removed_takes_its_containers_along(client: Client) -> None:
    pod_id, container_id = running(client, "removed")
    remove_pod(client, pod_id)
    assert (pods(client), containers(client)) == ([], [])
    assert client.refused("PodSandboxStatus", cri.PodSandboxStatusRequest(pod_sandbox_id=pod_id)) == "NOT_FOUND"
    assert client.refused("ContainerStatus", cri.ContainerStatusRequest(container_id=container_id)) == "NOT_FOUND"


@case
def ending_what_is_not_there_is_no_error(client: Client) -> None:
    assert client.refused("StopPodSandbox", cri.StopPodSandboxRequest(pod_sandbox_id=NOBODY)) == "OK"
    assert client.refused("RemovePodSandbox", cri.RemovePodSandboxRequest(pod_sandbox_id=NOBODY)) == "OK"
    assert client.refused("StopContainer", cri.StopContainerRequest(container_id=NOBODY)) == "OK"
    assert client.refused("RemoveContainer", cri.RemoveContainerRequest(container_id=NOBODY)) == "OK"


@case
def asking_for_what_is_not_there_is_not_found(client: Client) -> None:
    assert client.refused("PodSandboxStatus", cri.PodSandboxStatusRequest(pod_sandbox_id=NOBODY)) == "NOT_FOUND"
    assert client.refused("ContainerStatus", cri.ContainerStatusRequest(container_id=NOBODY)) == "NOT_FOUND"
    assert client.refused("StartContainer", cri.StartContainerRequest(container_id=NOBODY)) == "NOT_FOUND"
    update = cri.UpdateContainerResourcesRequest(container_id=NOBODY)
    update.linux.cpu_shares = 10
    assert client.refused("UpdateContainerResources", update) == "NOT_FOUND"
    assert client.refused("CreateContainer", creation(client, NOBODY, "none", "app")) == "NOT_FOUND"


# ---- containers


@case
def a_container_is_listed_as_it_was_described(client: Client) -> None:
    pod_id = run_pod(client, "home")
    container_id = create(client, pod_id, "home", "app", attempt=2)
    (listed,), status = containers(client), status_of(client, container_id)
    assert listed.pod_sandbox_id == pod_id
    for said in (listed, status):
        assert (said.id, said.metadata) == (container_id, cri.ContainerMetadata(name="app", attempt=2))
        assert (said.state, said.image.image) == (cri.CONTAINER_CREATED, IMAGE)
        assert (dict(said.labels), dict(said.annotations)) == ({"part": "app"}, {"noted": "of app"})
    assert listed.created_at == status.created_at > 0
    assert status.resources.linux.cpu_shares == 10


@case
def a_container_is_created_then_runs_then_has_ended(client: Client) -> None:
    pod_id = run_pod(client, "life")
    container_id = create(client, pod_id, "life")
    states, times = [], []
    for step in (None, start, stop):
        if step is not None:
            step(client, container_id)
        status = status_of(client, container_id)
        assert [one.state for one in containers(client)] == [status.state]
        states.append(status.state)
        times.append((status.created_at > 0, status.started_at > 0, status.finished_at > 0))
    assert states == [cri.CONTAINER_CREATED, cri.CONTAINER_RUNNING, cri.CONTAINER_EXITED]
    assert times == [(True, False, False), (True, True, False), (True, True, True)]
    assert status.created_at <= status.started_at <= status.finished_at


@case
def a_container_of_the_same_name_and_attempt_is_refused_until_it_is_removed(client: Client) -> None:
    pod_id, container_id = running(client, "same")
    again = creation(client, pod_id, "same", "app")
    assert client.refused("CreateContainer", again) == client.side.generation.taken.value
    create(client, pod_id, "same", attempt=1)
    create(client, run_pod(client, "another"), "another")
    remove(client, container_id)
    create(client, pod_id, "same")


@case
def a_container_is_started_once(client: Client) -> None:
    _, container_id = running(client, "once")
    request = cri.StartContainerRequest(container_id=container_id)
    assert client.refused("StartContainer", request) == "UNKNOWN"
    stop(client, container_id)
    assert client.refused("StartContainer", request) == "UNKNOWN"


@case
def a_container_may_be_stopped_twice_and_removed_twice(client: Client) -> None:
    _, container_id = running(client, "again")
    stop(client, container_id)
    stop(client, container_id)
    remove(client, container_id)
    remove(client, container_id)
    stop(client, container_id)
    assert containers(client) == []


@case
def a_container_that_runs_is_ended_by_its_removal(client: Client) -> None:
    pod_id, container_id = running(client, "forced")
    remove(client, container_id)
    assert containers(client) == []
    assert [(one.id, one.state) for one in pods(client)] == [(pod_id, cri.SANDBOX_READY)]


@case
def nothing_is_created_in_a_pod_that_was_stopped(client: Client) -> None:
    pod_id = run_pod(client, "over")
    stop_pod(client, pod_id)
    stopped = client.side.generation.stopped.value
    assert client.refused("CreateContainer", creation(client, pod_id, "over", "app")) == stopped
    assert containers(client) == []


@case
def an_image_that_is_not_there_is_not_found(client: Client) -> None:
    request = creation(client, run_pod(client, "imageless"), "imageless", "app")
    request.config.image.image = "localhost/nodeward/none:1"
    assert client.refused("CreateContainer", request) == "NOT_FOUND"
    request.config.image.image = IMAGE  # the name was not kept for the one that could not be made
    assert client.refused("CreateContainer", request) == "OK"


@case
def an_update_is_shown_by_the_status_and_leaves_the_rest(client: Client) -> None:
    _, container_id = running(client, "updated")
    update = cri.UpdateContainerResourcesRequest(container_id=container_id)
    update.linux.cpu_shares = 512
    assert client.refused("UpdateContainerResources", update) == "OK"
    update.linux.Clear()
    update.linux.cpu_period, update.linux.cpu_quota = 100_000, 50_000
    assert client.refused("UpdateContainerResources", update) == "OK"
    said = status_of(client, container_id).resources.linux
    assert (said.cpu_shares, said.cpu_period, said.cpu_quota) == (512, 100_000, 50_000)


@case
def an_update_of_one_that_does_not_run_is_kept(client: Client) -> None:
    pod_id = run_pod(client, "idle")
    container_id = create(client, pod_id, "idle")
    update = cri.UpdateContainerResourcesRequest(container_id=container_id)
    for shares, then in ((20, start), (30, stop)):
        update.linux.cpu_shares = shares
        assert client.refused("UpdateContainerResources", update) == "OK"
        then(client, container_id)
        assert status_of(client, container_id).resources.linux.cpu_shares == shares
    update.linux.cpu_shares = 40
    assert client.refused("UpdateContainerResources", update) == "OK"
    assert status_of(client, container_id).resources.linux.cpu_shares == 40


# ---- lists


@case
def lists_of_containers_are_filtered(client: Client) -> None:
    (pod_id, first), (_, other) = running(client, "filtered"), running(client, "beside")
    second = create(client, pod_id, "filtered", "side")
    running_ones = cri.ContainerFilter(state=cri.ContainerStateValue(state=cri.CONTAINER_RUNNING))
    table = {
        "nothing said": (cri.ContainerFilter(), {first, second, other}),
        "by id": (cri.ContainerFilter(id=first), {first}),
        "by an id that is not there": (cri.ContainerFilter(id=NOBODY), set()),
        "by pod": (cri.ContainerFilter(pod_sandbox_id=pod_id), {first, second}),
        "by state": (running_ones, {first, other}),
        "by label": (cri.ContainerFilter(label_selector={"part": "app"}), {first, other}),
        "by a label of another value": (cri.ContainerFilter(label_selector={"part": "none"}), set()),
        "by pod and label": (cri.ContainerFilter(pod_sandbox_id=pod_id, label_selector={"part": "side"}), {second}),
    }
    found = {name: {one.id for one in containers(client, wanted)} for name, (wanted, _) in table.items()}
    assert found == {name: expected for name, (_, expected) in table.items()}


@case
def lists_of_pods_are_filtered(client: Client) -> None:
    ready, ended = run_pod(client, "ready"), run_pod(client, "ended")
    stop_pod(client, ended)
    not_ready = cri.PodSandboxFilter(state=cri.PodSandboxStateValue(state=cri.SANDBOX_NOTREADY))
    table = {
        "nothing said": (cri.PodSandboxFilter(), {ready, ended}),
        "by id": (cri.PodSandboxFilter(id=ready), {ready}),
        "by an id that is not there": (cri.PodSandboxFilter(id=NOBODY), set()),
        "by state": (not_ready, {ended}),
        "by label": (cri.PodSandboxFilter(label_selector={"app": "ready"}), {ready}),
        "by label and state": (cri.PodSandboxFilter(state=not_ready.state, label_selector={"app": "ready"}), set()),
    }
    found = {name: {one.id for one in pods(client, wanted)} for name, (wanted, _) in table.items()}
    assert found == {name: expected for name, (_, expected) in table.items()}


@case
def lists_are_streamed_too_or_unimplemented(client: Client) -> None:
    pod_id, container_id = running(client, "streamed")
    images = cri.StreamImagesRequest()
    if not client.side.generation.streams_lists:
        for method in ("StreamPodSandboxes", "StreamContainers"):
            assert client.refused(method, b"") == "UNIMPLEMENTED"
        assert client.refused("v1.ImageService/StreamImages", b"") == "UNIMPLEMENTED"
        return
    told = client.streamed("StreamPodSandboxes", cri.StreamPodSandboxesRequest(), cri.StreamPodSandboxesResponse)
    assert [one for part in told for one in part.pod_sandboxes] == pods(client)
    listed = client.streamed("StreamContainers", cri.StreamContainersRequest(), cri.StreamContainersResponse)
    assert [one for part in listed for one in part.containers] == containers(client)
    nobody = cri.StreamContainersRequest(filter=cri.ContainerFilter(pod_sandbox_id=NOBODY))
    none = client.streamed("StreamContainers", nobody, cri.StreamContainersResponse)
    assert [one for part in none for one in part.containers] == []
    ones = client.streamed("v1.ImageService/StreamImages", images, cri.StreamImagesResponse)
    assert IMAGE in [tag for part in ones for one in part.images for tag in one.repo_tags]
    assert {one.id for one in pods(client)} == {pod_id}
    assert {one.id for one in containers(client)} == {container_id}


@case
def statistics_are_streamed_too_or_unimplemented(client: Client) -> None:
    pod_id, container_id = running(client, "measured")
    if not client.side.generation.streams_lists:
        for method in ("StreamContainerStats", "StreamPodSandboxStats", "StreamPodSandboxMetrics"):
            assert client.refused(method, b"") == "UNIMPLEMENTED"
        return
    ones = client.streamed("StreamContainerStats", cri.StreamContainerStatsRequest(), cri.StreamContainerStatsResponse)
    assert [one.attributes.id for part in ones for one in part.container_stats] == [container_id]
    sandboxes = cri.StreamPodSandboxStatsRequest()
    whole = client.streamed("StreamPodSandboxStats", sandboxes, cri.StreamPodSandboxStatsResponse)
    assert [one.attributes.id for part in whole for one in part.pod_sandbox_stats] == [pod_id]
    metrics = cri.StreamPodSandboxMetricsRequest()
    told = client.streamed("StreamPodSandboxMetrics", metrics, cri.StreamPodSandboxMetricsResponse)
    assert [one.pod_sandbox_id for part in told for one in part.pod_sandbox_metrics] == [pod_id]


# ---- as time goes


@case
def what_happens_is_told_to_each_who_listens_or_to_one_of_them(client: Client) -> None:
    whole = ["CREATED", "STARTED", "STOPPED", "DELETED"]
    with client.events() as first, client.events() as second:
        number = 0
        while not (first.all and second.all):  # a listener that comes late has missed what was before
            number += 1
            remove_pod(client, run_pod(client, f"early{number}"))
        pod_id, container_id = running(client, "heard")
        stop(client, container_id)
        remove(client, container_id)
        stop_pod(client, pod_id)
        remove_pod(client, pod_id)
        each = client.side.generation.tells_each
        copies = 2 if each else 1

        def told() -> list[list[str]]:
            return [heard.kinds(about) for heard in (first, second) for about in (container_id, pod_id)]

        wait_for(lambda: sum(map(len, told())) >= copies * 2 * len(whole), "events of pod and container")
        assert sorted(kind for kinds in told() for kind in kinds) == sorted(copies * 2 * whole)
        assert not each or told() == [whole] * 4
    events = [one for one in (*first.all, *second.all) if one.container_id == container_id]
    assert {one.pod_sandbox_status.id for one in events} == {pod_id}
    begun = [one for one in events if one.container_event_type == cri.CONTAINER_STARTED_EVENT]
    assert [[inner.id for inner in one.containers_statuses] for one in begun] == [[container_id]] * copies


@case
def a_runtime_that_restarts_ends_every_call_and_keeps_what_it_has(client: Client) -> None:
    pod_id, container_id = running(client, "kept")
    ended = create(client, pod_id, "kept", "ended")
    start(client, ended)
    stop(client, ended)
    before = pods(client), sorted(containers(client), key=lambda one: one.id)
    with client.events() as heard:
        run_pod(client, "known")  # the stream is under way
        wait_for(lambda: bool(heard.all), "event")
        client.side.stop()
        wait_for(lambda: heard.ended != "", "end of the stream")
        within(client, "Version", b"", "UNAVAILABLE")
        client.side.start()
    assert heard.ended == "UNAVAILABLE"
    within(client, "Version", b"", "OK")
    wait_for(lambda: len(pods(client)) == 2, "list of both pods")
    kept = [one for one in pods(client) if one.id == pod_id], sorted(containers(client), key=lambda one: one.id)
    assert kept == before
    assert status_of(client, container_id).state == cri.CONTAINER_RUNNING
    again = creation(client, pod_id, "kept", "app")
    assert client.refused("CreateContainer", again) == client.side.generation.taken.value
    stop(client, container_id)
    assert status_of(client, container_id).state == cri.CONTAINER_EXITED
