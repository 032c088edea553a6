"""Cases of writing misc.max: what is a value, what is refused with which errno, what is read back."""

import errno
from typing import Final

from tests.contract.kernel.vocabulary import Case, KernelUnderTest, child, limit, refused, text

# Writing misc.max. (name, bytes, sev's line afterwards or an errno); the limit was `sev 9` before.

WRITES: Final[tuple[tuple[str, bytes, str | int], ...]] = (
    ("plain", b"sev 5", "5"),
    ("newline", b"sev 5\n", "5"),
    ("spaces_around", b" sev 6 ", "6"),
    ("space_before_newline", b"sev 5 \n", "5"),
    ("tab_and_newline_before", b"\t\nsev 4", "4"),
    ("max", b"sev max", "max"),
    ("zero", b"sev 0", "0"),
    ("hexadecimal", b"sev 0x10", "16"),
    ("hexadecimal_capitals", b"sev 0XfF", "255"),
    ("octal", b"sev 010", "8"),
    ("octal_zero", b"sev 00", "0"),
    ("plus", b"sev +3", "3"),
    ("plus_hexadecimal", b"sev +0x3", "3"),
    ("above_capacity", b"sev 1000", "1000"),
    ("largest_is_max", b"sev 18446744073709551615", "max"),
    ("largest_hexadecimal_is_max", b"sev 0xffffffffffffffff", "max"),
    ("largest_number", b"sev 18446744073709551614", "18446744073709551614"),
    ("nothing", b"", "9"),
    ("nul_ends_it", b"sev 7\0garbage", "7"),
    ("two_spaces", b"sev  7", errno.EINVAL),
    ("tab_between", b"sev\t7", errno.EINVAL),
    ("minus", b"sev -1", errno.EINVAL),
    ("minus_zero", b"sev -0", errno.EINVAL),
    ("plus_minus", b"sev +-3", errno.EINVAL),
    ("fraction", b"sev 1.5", errno.EINVAL),
    ("suffix", b"sev 1Mi", errno.EINVAL),
    ("octal_digit_nine", b"sev 09", errno.EINVAL),
    ("bare_hexadecimal_prefix", b"sev 0x", errno.EINVAL),
    ("max_capitals", b"sev MAX", errno.EINVAL),
    ("max_and_more", b"sev maxx", errno.EINVAL),
    ("name_only", b"sev", errno.EINVAL),
    ("name_and_space", b"sev ", errno.EINVAL),
    ("newline_only", b"\n", errno.EINVAL),
    ("max_only", b"max", errno.EINVAL),
    ("number_only", b"5", errno.EINVAL),
    ("name_capitals", b"SEV 1", errno.EINVAL),
    ("equals_sign", b"sev=1", errno.EINVAL),
    ("three_words", b"sev 1 2", errno.EINVAL),
    ("two_lines", b"sev 1\nsev_es 1\n", errno.EINVAL),
    ("two_lines_of_one_resource", b"sev 1\nsev 1\n", errno.EINVAL),
    ("resource_of_another_kernel", b"sgx_epc 4096", errno.EINVAL),
    ("no_such_resource", b"nonsense 1", errno.EINVAL),
    ("beyond_64_bits", b"sev 18446744073709551616", errno.ERANGE),
    ("far_beyond_64_bits", b"sev 100000000000000000000", errno.ERANGE),
    ("beyond_64_bits_with_rest", b"sev 100000000000000000000x", errno.ERANGE),
    ("longer_than_a_page", b"sev " + b"0" * 4096 + b"1", errno.E2BIG),
)


def _write_case(data: bytes, expected: str | int) -> Case:
    def case(k: KernelUnderTest) -> None:
        c = child(k, "c")
        limit(k, c, "sev 9")
        if isinstance(expected, int):
            refused(expected, lambda: k.files.write(f"{c}/misc.max", data))
            expected_line = "9"
        else:
            k.files.write(f"{c}/misc.max", data)
            expected_line = expected
        assert text(k, f"{c}/misc.max") == f"sev {expected_line}\nsev_es max\n"

    return case


def case_write_read_only_files(k: KernelUnderTest) -> None:
    c = child(k, "c")
    refused(errno.EINVAL, lambda: k.files.write(f"{c}/misc.current", b"sev 1"))
    refused(errno.EINVAL, lambda: k.files.write(f"{c}/misc.events", b"0"))
    if k.version == 2:
        refused(errno.EINVAL, lambda: k.files.write(f"{c}/cgroup.controllers", b"+misc"))
    refused(errno.EINVAL, lambda: k.files.write(f"{k.mount}/misc.capacity", b"sev 1"))


TABLE: Final[dict[str, Case]] = {f"write_{name}": _write_case(data, expected) for name, data, expected in WRITES}
