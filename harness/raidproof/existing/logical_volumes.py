"""The logical volumes of a server: the output of lvs(8) as JSON."""

from pydantic import BaseModel, ConfigDict

from raidproof.existing.given import Given, plain, shortened

COLUMNS = "vg_name,lv_name,segtype,pool_lv,chunk_size,discards"
"""The columns that the import reads, with sizes in bytes."""
COMMAND = ("lvs", "--readonly", "--all", "--units=b", "--nosuffix", "--reportformat=json", f"--options={COLUMNS}")
"""The command that reports the volumes. With --readonly, LVM takes no lock and repairs nothing."""


class LogicalVolume(BaseModel):
    """One segment of a logical volume; a volume without several kinds of segments has one."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    segment: str
    """The type of the segment: ``linear``, ``thin``, ``striped``, ``cache``, ..."""
    pool: str | None
    """The name in lsblk of the pool of a thin volume."""
    chunk_size: int | None
    """Bytes of a chunk of a thin pool."""
    discards: str | None
    """What a thin pool does with discards: ``passdown``, ``nopassdown``, ``ignore``."""
    source: str


def parse_lvs(file: Given) -> dict[str, LogicalVolume]:
    """Return the logical volumes by their names in lsblk, from the output of `COMMAND`.

    Raises:
        RequestError: the text is not JSON of lvs, or a volume lacks a column.
    """
    document = file.json()
    try:
        rows = [row for report in document["report"] for row in report["lv"]]
        found = [({name: str(row[name]) for name in COLUMNS.split(",")}) for row in rows]
    except (KeyError, TypeError):
        file.refuse(1, "is no report of lvs with the needed columns", f"write it with: {' '.join(COMMAND)}")
    volumes: dict[str, LogicalVolume] = {}
    for row in found:
        group, size = row["vg_name"], row["chunk_size"]
        if not size.isdecimal() or len(size) > 18:
            file.refuse(1, f"chunk_size: not a number of bytes: {shortened(size)!r}", "use --units=b --nosuffix")
        name = in_lsblk(group, row["lv_name"])
        # A volume with several segments has several rows, which may be of different types.
        mixed = name in volumes and volumes[name].segment != row["segtype"]
        volumes[name] = LogicalVolume(
            segment="several" if mixed else plain(row["segtype"]),
            pool=in_lsblk(group, row["pool_lv"]) if row["pool_lv"] else None,
            chunk_size=int(size) or None,
            discards=plain(row["discards"]) or None,
            source=file.name,
        )
    return volumes


def in_lsblk(group: str, volume: str) -> str:
    """Return the name in lsblk of a logical volume; lvs puts the names of hidden ones in brackets."""
    return "-".join(part.replace("-", "--") for part in (group, volume.strip("[]")))
