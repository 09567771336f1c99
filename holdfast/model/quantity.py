"""Kubernetes quantities (`500m`, `2`, `1Gi`) as whole thousandths, which add up without rounding; sizes in bytes."""

from __future__ import annotations

import re
from decimal import ROUND_CEILING, Decimal
from typing import Final

_FORM: Final = re.compile(r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+))(?:([numkMGTPE]|[KMGTPE]i)|[eE]([+-]?[0-9]{1,3}))?")
_SUFFIXES: Final = {
    **{suffix: Decimal(1000) ** power for suffix, power in zip(("n", "u", "m"), (-3, -2, -1), strict=True)},
    **{suffix: Decimal(1000) ** power for power, suffix in enumerate("kMGTPE", start=1)},
    **{f"{suffix}i": Decimal(1024) ** power for power, suffix in enumerate("KMGTPE", start=1)},
}
_EXPONENT_MAXIMUM: Final = 18
_MOST: Final = Decimal(10**27)
"""Larger quantities count as this: JSON is not read with thousands of digits."""


def parse_quantity(text: str | float) -> int:
    """Return a quantity in thousandths, rounded up as Kubernetes does: `500m` is 500, `1Gi` is 1,073,741,824,000.

    Raises:
        ValueError: if it is no quantity, is negative, or has an exponent above 18.
    """
    found = _FORM.fullmatch(str(text).strip())
    if found is None:
        raise ValueError(f"{text!r} is not a quantity: expected for example 500m, 2 or 1Gi")
    number, suffix, exponent = found.groups()
    if exponent is not None and abs(int(exponent)) > _EXPONENT_MAXIMUM:
        raise ValueError(f"{text!r} is too large a quantity: expected an exponent of at most {_EXPONENT_MAXIMUM}")
    value = Decimal(number) * _SUFFIXES.get(suffix or "", Decimal(1)) * Decimal(10) ** int(exponent or 0)
    if value < 0:
        raise ValueError(f"{text!r} is less than nothing: expected a quantity of at least 0")
    return int((min(value, _MOST) * 1000).to_integral_value(ROUND_CEILING))


def format_quantity(thousandths: int) -> str:
    """Format thousandths: 500 is `500m`, 2,000 is `2`; a multiple of 1,024 units is in `Ki` to `Ei`."""
    if thousandths % 1000:
        return f"{thousandths}m"
    whole = thousandths // 1000
    for power, suffix in ((6, "Ei"), (5, "Pi"), (4, "Ti"), (3, "Gi"), (2, "Mi"), (1, "Ki")):
        if whole and whole % 1024**power == 0:
            return f"{whole // 1024**power}{suffix}"
    return str(whole)


def format_bytes(count: int) -> str:
    """Return a number of bytes in a human-readable form: `1.5 GiB`."""
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.4g} {unit}"
        size /= 1024
    return f"{size:.4g} TiB"
