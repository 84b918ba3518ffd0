"""A device of device-mapper whose requests all fail, as if its disk were gone: the target ``error``."""

from raidproof.core.layer import found_in


def fail_commands(name: str, table: str) -> list[list[str]]:
    """Return the commands after which each request to a device fails; ``table``: its output of ``dmsetup table``.

    Raises:
        RigError: the table is truncated.
    """
    sectors = found_in(r"^0 (\d+) \S+ \S", table, f"the number of sectors of {name} in {table!r}")
    return [
        ["dmsetup", "load", name, "--table", f"0 {sectors} error"],
        # A flush of requests in flight could wait for ever, and the devices below carry no file system of their own.
        ["dmsetup", "suspend", "--noflush", "--nolockfs", name],
        ["dmsetup", "resume", name],
    ]
