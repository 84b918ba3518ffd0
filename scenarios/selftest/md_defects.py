"""Builds modules of md, each with a module parameter that selects a defect by which md breaks a promise.

While the parameter is empty, a module behaves as the original.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from raidproof.image import kernel
from raidproof.image.kernel.rebuild import SourceEdit, Substitution, rebuilt
from raidproof.verdict.checks.volatile import VOLATILE
from raidproof.verdict.contract import PROMISES
from raidproof.verdict.crash_states import RECOVERY
from scenarios.selftest.planted_source import inserted


@dataclass(frozen=True)
class MdDefect:
    """One defect of md."""

    says: str
    """The wrong behaviour, as a sentence."""
    module: str
    """Name of the module, as in /sys/module."""
    file: str
    """Path of the changed file in the kernel's source."""
    substitution: Substitution
    level: str
    """Level of the array that the defect affects."""
    found_as: str
    """Regular expression for the beginning of the checker or the promise that must fail."""

    @property
    def path(self) -> str:
        """Path of the module in the kernel's source."""
        return f"drivers/md/{self.module.replace('_', '-')}.ko"


_LOST = "{ bio_set_dev(mbio, rdev->bdev); bio_endio(mbio); } else "
_FLUSH = Substitution(
    "md_flush_request",
    "if (rdev->raid_disk < 0 ||",
    'if ((rdev->raid_disk == 1 && (planted("flush-not-forwarded") || planted_nth("flush-every-4th", 4))) || '
    "rdev->raid_disk < 0 ||",
)
"""One module has the defects of all flushes: it is built once."""
MD_DEFECTS: Mapping[str, MdDefect] = {
    "copy-every-100th": MdDefect(
        "the second copy of every 100th write of a RAID1 is never sent",
        "raid1",
        "drivers/md/raid1.c",
        Substitution(
            "raid1_write_request",
            "if (!raid1_add_bio_to_plug(",
            f'if (i == 1 && planted_nth("copy-every-100th", 100)) {_LOST}if (!raid1_add_bio_to_plug(',
        ),
        "1",
        "redundancy|array",
    ),
    "parity-every-50th": MdDefect(
        "every 50th write of the parity of a RAID5 is never sent",
        "raid456",
        "drivers/md/raid5.c",
        Substitution(
            "ops_run_io",
            "submit_bio_noacct(bi);",
            'if (op_is_write(op) && sh->pd_idx == i && planted_nth("parity-every-50th", 50)) bio_endio(bi); '
            "else submit_bio_noacct(bi);",
        ),
        "5",
        "redundancy|array",
    ),
    "flush-not-forwarded": MdDefect(
        "flushes are not forwarded to the member in slot 1",
        "md_mod",
        "drivers/md/md.c",
        _FLUSH,
        "5",
        "|".join(map(re.escape, (*PROMISES.values(), RECOVERY))),
    ),
    "flush-every-4th": MdDefect(
        "every 4th flush is not forwarded to the member in slot 1", "md_mod", "drivers/md/md.c", _FLUSH, "5", VOLATILE
    ),
}


def edit(name: str) -> SourceEdit:
    """Return the edit of md's source that inserts a defect."""
    defect = MD_DEFECTS[name]
    return SourceEdit(defect.file, inserted(), (defect.substitution,))


def defective_md(name: str, of: str = kernel.DEFAULT) -> Path:
    """Return the folder with the module of a defect, for ``--modules`` of provider ``uml``; build it if needed.

    ``of``: name of the kernel.

    Raises:
        RequestError: no kernel is named so.
        RequirementMissing, RigError: this host cannot build the module.
    """
    return rebuilt(of, MD_DEFECTS[name].path, edit(name))
