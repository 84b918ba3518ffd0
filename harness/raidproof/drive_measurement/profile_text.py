"""A profile as TOML text, as `raidproof.disk.profile.load_profile` reads it."""

import json
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING

from raidproof.disk.profile import Profile

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


def profile_text(profile: Profile) -> str:
    """Return a profile as TOML; its name is that of the file."""
    return "\n".join([*_lines(profile, {"name"}), ""])


def _lines(part: "DataclassInstance", omitted: set[str]) -> list[str]:
    values = {one.name: getattr(part, one.name) for one in fields(part)}
    lines = [
        f"{name} = {_value(value)}"
        for name, value in values.items()
        if name not in omitted and value is not None and not is_dataclass(value)
    ]
    for name, value in values.items():
        if is_dataclass(value) and not isinstance(value, type):
            lines += ["", f"[{name}]", *_lines(value, set())]
    return lines


def _value(value: float | str) -> str:
    if isinstance(value, float):
        # Five digits: more than a measurement gives.
        return repr(float(f"{value:.5g}"))
    # A basic string of TOML has the escapes of JSON, except for characters outside the basic plane.
    return json.dumps(value, ensure_ascii=False)
