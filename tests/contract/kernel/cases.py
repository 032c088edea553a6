"""All cases of the kernel contract, by id. The same ids run on the double and on the real controller.

Those of `V1_CASES` run with misc mounted as cgroup v1: all but those about what only cgroup v2 has, and some more.
An id is the function's name without `case_`, the name of a story, or `write_<name>` for a row of the table of writes.
"""

from types import ModuleType

from tests.contract.kernel import case_cpusets, case_limits, case_writes
from tests.contract.kernel.stories import STORIES
from tests.contract.kernel.vocabulary import Case


def _stories(of: str = "") -> dict[str, Case]:
    return {
        name: case
        for name, case in STORIES.items()
        if (name.startswith(of) if of else not name.startswith(("v1_", "cpus_")))
    }


def _of(module: ModuleType) -> dict[str, Case]:
    return {name.removeprefix("case_"): case for name, case in vars(module).items() if name.startswith("case_")}


CASES: dict[str, Case] = {**case_writes.TABLE, **_of(case_writes), **_stories()}

CPU_CASES: dict[str, Case] = {**case_cpusets.TABLE, **_stories("cpus_"), **case_limits.TABLE, **_of(case_limits)}
"""Those about CPUs and memory, with cgroup v2 on a machine of eight CPUs; the guest for the others has one."""

_V2_ONLY = (
    "files_need_the_parent_to_hand_down",
    "files_listing_is_sorted_with_children",
    "handle_of_a_controller_turned_off",
    "wait_of_a_controller_turned_off",
    "charge_counts_where_misc_is_on",
    "charge_not_in_a_cgroup_that_hands_down",
    "processes_are_listed_and_move",
    "processes_not_where_controllers_go_down",
)
"""About subtree_control or cgroup.events, as those called `control_*` are."""

V1_CASES: dict[str, Case] = {
    **{name: case for name, case in CASES.items() if name not in _V2_ONLY and not name.startswith("control_")},
    **_stories("v1_"),
}
