"""All cases of the kernel contract, by id. The same ids run on the double and on the real controller.

`CASES` is in the order of the modules; an id is the function's name without `case_`, or `write_<name>` for a row of the
table of writes.
"""

from types import ModuleType

from tests.contract.kernel import case_charges, case_files, case_waits, case_writes
from tests.contract.kernel.vocabulary import Case


def _of(module: ModuleType) -> dict[str, Case]:
    return {name.removeprefix("case_"): case for name, case in vars(module).items() if name.startswith("case_")}


CASES: dict[str, Case] = {
    **case_writes.TABLE,
    **_of(case_writes),
    **_of(case_files),
    **_of(case_charges),
    **_of(case_waits),
}
