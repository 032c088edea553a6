"""A misc resource that no line of code knows: a row of the settings is enough to count, show and offer it."""

from pathlib import Path

from nodeward.app.settings.load import load
from nodeward.cli.keys import lines
from nodeward.engine.ledger.device_ids import id_name
from nodeward.engine.show.key_rows import key_rows
from tests.unit.app.keyed_node import KEYS, VM, Node, play

QUX = "example.com/qux-slots"
ROW = f"{{resources: [{QUX}], publisher: device-plugin, publish: {QUX}}}"


def test_a_new_misc_resource_is_offered_counted_and_shown_by_its_row_alone(tmp_path: Path) -> None:
    """Given a kernel with such a resource, when the settings have a row of its name, then kubelet is offered an id for
    each, and one fewer while a machine outside of Kubernetes has one."""
    file = tmp_path / "nodeward.yaml"
    file.write_text(f"ledger: {{mode: enforce, keys: {{qux_slots: {ROW}}}}}\n")

    async def story(node: Node) -> None:
        assert node.listed == [(f"qux-slots-key-{number:04d}", True) for number in range(KEYS)]

        node.charge(VM, 1)
        await node.until(KEYS - 1, 30)

        assert node.listed[-1] == (id_name("qux_slots", KEYS - 1), False)
        (row,) = key_rows(node.core.state, node.clock.now_ns())
        assert (row.key, row.capacity, row.used, row.charged, row.foreign) == ("qux_slots", KEYS, 2, 1, 1)
        said = "\n".join(lines(row))
        assert f"qux_slots ({QUX}): 14 free: 16 there are, less 1 that pods hold or were promised, 1 in foreign" in said
        assert f"{VM}: holds 1 (a machine outside of Kubernetes)" in said

    play(story, load(str(file), {}).ledger)
