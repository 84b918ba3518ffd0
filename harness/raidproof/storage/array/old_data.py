"""Which disks of an array may begin with old data, so that it is consistent without a resync."""

from raidproof.storage.array.spec import PARITY_LEVELS, ArraySpec, Level


def holders_of_old_data(spec: ArraySpec) -> tuple[str, ...]:
    """Return the serials of the members that may hold `sparse_image.OLD_DATA` where nothing was written.

    It is the same at each place of each disk. So copies agree whatever the layout, and the parity of RAID4 and 5,
    their sum, is zero over an even number of members: of an odd number the last stays blank. RAID6 has a second sum
    with another factor for each member, and its place changes from stripe to stripe: all its members stay blank. So
    do those of an array that is resynced first, which would copy the old data to where it is logged, and of a RAID10
    with copies in two rows, since a crash state has old data row by row.
    """
    if spec.level is Level.RAID0:
        return spec.members
    if spec.level is Level.RAID6 or not spec.assume_clean or _straddles(spec):
        return ()
    even = len(spec.members) // 2 * 2 if spec.level in PARITY_LEVELS else len(spec.members)
    return spec.members[:even]


def _straddles(spec: ArraySpec) -> bool:
    """Whether copies that are near each other lie in two rows."""
    if spec.level is not Level.RAID10:
        return False
    layout = spec.layout or "n2"
    return layout.startswith("n") and len(spec.members) % int(layout[1:]) != 0
