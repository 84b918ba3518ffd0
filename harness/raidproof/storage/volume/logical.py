"""Logical volumes of LVM in one volume group on the array: commands of lvm(8), and the reports that they print."""

import json
from typing import ClassVar, NamedTuple, Self

from raidproof.core.errors import RequestError, RigError
from raidproof.core.layer import Machine, Value, whole_number
from raidproof.core.units import MIB, Size
from raidproof.guest.assembled import DEVICE_MAPPER
from raidproof.storage.array import Geometry
from raidproof.storage.member import MAPPER, Assembly
from raidproof.storage.volume.mapper import NAME, MappedVolume
from raidproof.storage.volume.volume import Reading, wipe_command

GROUP, VOLUME = NAME, "data"
"""The names of the volume group, and of the logical volume that carries the file system."""
EXTENT = 4 * MIB
"""Bytes of an extent of the volume group: vgcreate's default."""
USUAL_START = MIB
"""Bytes of the array before the first extent: pvcreate's default."""
HEALTHY = "ok"
"""The health of a volume group without a problem, for which lvs prints nothing."""
_COLUMNS = ("lv_name", "segtype", "lv_size", "lv_health_status", "vg_free", "vg_missing_pv_count", "vg_seqno")


class LogicalVolume(MappedVolume):
    """A logical volume of LVM. The extents of its group are aligned to the stripes of the array, as by pvcreate.

    Before each activation, vgck(8) checks the metadata of the volume group; afterwards lvs(8) reports its health.
    """

    device: ClassVar[str | None] = f"{MAPPER}{GROUP}-{VOLUME}"
    name: ClassVar[str] = f"{GROUP}-{VOLUME}"
    packages: ClassVar[tuple[str, ...]] = ("lvm2", "dmsetup")
    forcing: ClassVar[frozenset[str]] = frozenset({"--yes", "--wipesignatures=n", "--zero=n", "--devices=/dev/md0"})

    first_extent: Size = USUAL_START
    """Bytes of the array before the first extent of the volume group; set by `aligned`."""

    @property
    def data_offset(self) -> int:
        """Bytes of the array before the first extent."""
        return self.first_extent

    def aligned(self, geometry: Geometry | None) -> Self:
        """Return the request with the first extent at a multiple of the array's stripe.

        Without the option --dataalignment, pvcreate chooses the same place: its default, or the next multiple of the
        stripe (_alignment_overrides_default in LVM's lib/metadata/metadata.c).
        """
        stripe = geometry.stripe_unit * geometry.data_disks if geometry is not None else USUAL_START
        return self.model_copy(update={"first_extent": -(-USUAL_START // stripe) * stripe})

    def refuse_array(self, below: str) -> None:
        """Check that the array is no device of device-mapper.

        Raises:
            RequestError: it is one.
        """
        if below.startswith("/dev/dm-"):
            raise RequestError(
                f"volume = {self.type} cannot be on {below}: LVM uses no logical volume as a physical volume "
                "(lvm.conf(5), devices/scan_lvs)",
                remedy="choose an array of md, or leave volume out",
            )

    def room(self, size: int) -> int:
        """Return the bytes of the whole extents on an array of ``size`` bytes."""
        return (size - self.first_extent) // EXTENT * EXTENT

    def group_commands(self, below: str) -> list[list[str]]:
        """Return the commands that erase earlier metadata, and create the physical volume and the volume group."""
        return [
            wipe_command(below),
            ["pvcreate", only(below), "--yes", f"--dataalignment={self.first_extent}b", below],
            ["vgcreate", only(below), f"--physicalextentsize={EXTENT}b", GROUP, below],
        ]

    def assembly(self, below: str) -> tuple[Assembly, ...]:
        """Return how the metadata of the volume group is checked, and how its volumes are activated."""
        commands = (["vgck", only(below), GROUP], ["vgchange", only(below), "--activate=y", GROUP])
        return tuple(Assembly(self.path(below), tuple(words), DEVICE_MAPPER, self.name) for words in commands)

    def close_commands(self, below: str) -> list[list[str]]:
        """Return the command that deactivates the volumes of the group."""
        return [["vgchange", only(below), "--activate=n", GROUP]]

    def read(self, machine: Machine, below: str) -> Reading:
        """Read settings and counters with dmsetup and lvs."""
        kernel = super().read(machine, below)
        report = parse_lvs(machine.succeed(lvs_command(below)))
        return Reading(
            {**kernel.settings, **report.settings},
            {**kernel.counters, "size": report.size, "free": report.free, "metadata_sequence": report.sequence},
        )

    def asked(self) -> dict[str, Value]:
        """Return the kind of the volume's segment, and the health of the volume group."""
        return {"segment": self.type, "health": HEALTHY, "missing_physical_volumes": 0}


class Report(NamedTuple):
    """What lvs reports about the volume group."""

    segment: str
    """The type of the segment of the volume with the file system: ``linear``."""
    size: int
    """Bytes of this volume."""
    free: int
    """Bytes of the group that no volume has."""
    health: str
    """The column lv_health_status of all volumes that have a problem; `HEALTHY` without any."""
    missing: int
    """Number of missing physical volumes."""
    sequence: int
    """Number of changes of the group's metadata (vg_seqno)."""

    @property
    def settings(self) -> dict[str, Value]:
        """The values to compare with the requested ones."""
        return {"segment": self.segment, "health": self.health, "missing_physical_volumes": self.missing}


def only(below: str) -> str:
    """Return the option by which a command of LVM considers only the array, and neither reads nor writes a list."""
    return f"--devices={below}"


def lvs_command(below: str) -> list[str]:
    """Return the command that reports all volumes of the group, with sizes in bytes."""
    format_ = ["--units=b", "--nosuffix", "--reportformat=json"]
    return ["lvs", only(below), "--all", *format_, f"--options={','.join(_COLUMNS)}", GROUP]


def parse_lvs(text: str) -> Report:
    """Parse the output of `lvs_command`.

    Raises:
        RigError: the output is truncated, or has no volume with the name `VOLUME`.
    """
    try:
        rows: list[dict[str, str]] = [row for one in json.loads(text)["report"] for row in one["lv"]]
        (own,) = (row for row in rows if row["lv_name"] == VOLUME)
        unwell = [f"{row['lv_name']}: {row['lv_health_status']}" for row in rows if row["lv_health_status"]]
        words = {name: own[name] for name in _COLUMNS}
    except (ValueError, KeyError, TypeError) as error:
        raise RigError(f"lvs: no report about one volume {VOLUME} of {GROUP}: {text.strip()[:300]!r}") from error
    return Report(
        segment=words["segtype"],
        size=whole_number(words["lv_size"], "lvs: lv_size"),
        free=whole_number(words["vg_free"], "lvs: vg_free"),
        health=", ".join(unwell) or HEALTHY,
        missing=whole_number(words["vg_missing_pv_count"], "lvs: vg_missing_pv_count"),
        sequence=whole_number(words["vg_seqno"], "lvs: vg_seqno"),
    )
