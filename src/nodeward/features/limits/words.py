"""Amounts of misc resources for people. Bytes are in binary units: a whole number of them (`4Mi`) is exact, one with a
point (`3.62Mi`) is cut; JSON has every byte."""

from nodeward.core.quantity import binary_text

_BYTES = ("sgx_epc",)


def amount(resource: str, value: int | None) -> str:
    """A value for people: `-` where it is not known, bytes in binary units."""
    if value is None:
        return "-"
    if resource not in _BYTES or value < 1024:
        return str(value)
    exact = binary_text(value)
    if not exact.isdigit() and len(exact) <= len("1023Mi"):
        return exact
    size, unit = 1024, "Ki"
    for bigger in ("Mi", "Gi", "Ti"):
        if value >= size * 1024:
            size, unit = size * 1024, bigger
    places = 2 if value < 100 * size else 1
    return f"{value * 10**places // size / 10**places:.{places}f}{unit}"
