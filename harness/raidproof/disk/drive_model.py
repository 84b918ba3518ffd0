"""Models of drives: the profile that simulates a model, by the model string that the operating system reports."""

import re
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

_TABLE = Path(__file__).with_name("drive_models.toml")
ROTATING, FLASH = "hdd-7200-sata", "ssd-sata"
"""Profiles of unknown models: of rotating drives, and of flash with a volatile write cache."""


@dataclass(frozen=True)
class DriveModel:
    """The entry of a drive in the table of models."""

    profile: str
    """Name of the profile."""
    source: str
    differs: str = ""
    """How the drive differs from the profile; empty if it does not."""
    protected: bool = False
    """Whether the write cache of the drive survives a power cut."""


@cache
def _tables() -> tuple[tuple[tuple[re.Pattern[str], DriveModel], ...], tuple[tuple[re.Pattern[str], str], ...]]:
    document = tomllib.loads(_TABLE.read_text())
    models = tuple(
        (
            re.compile(one["pattern"], re.IGNORECASE),
            DriveModel(one["profile"], one["source"], one.get("differs", ""), one.get("protected", False)),
        )
        for one in document["model"]
    )
    controllers = tuple((re.compile(one["pattern"], re.IGNORECASE), one["source"]) for one in document["controller"])
    return models, controllers


def drive_model(model: str) -> DriveModel | None:
    """Return the entry of a model string such as ``ST4000NM0035-1V4107``; None if the table has none."""
    return next((entry for pattern, entry in _tables()[0] if pattern.match(_named(model))), None)


def logical_drive(model: str, vendor: str = "") -> str | None:
    """Return the source by which a model string is that of a logical drive of a RAID controller; None if it is not."""
    words = (_named(model), f"{vendor.strip()} {_named(model)}")
    return next((source for pattern, source in _tables()[1] if any(map(pattern.match, words))), None)


def _named(model: str) -> str:
    # udev replaces spaces by underscores. Some tools print the vendor before the model; that of SATA drives is ATA.
    return re.sub(r"^((ATA|HGST|HITACHI|SEAGATE|IBM-ESXS|LENOVO-X)\s+)+", "", model.replace("_", " ").strip())
