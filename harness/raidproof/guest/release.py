# No pathlib, no argparse: on the minimal Python of a guest each import takes time.
"""Stops a block device by a file in sysfs, and waits until the kernel has closed the devices below it.

The harness copies this file into machines: standard library only. Run as ``release.py FILE DEVICE...``: it writes to
FILE, and ends when each DEVICE can be opened with O_EXCL, which the kernel refuses while another device consists of
it. Exit status 1: FILE does not exist, or a DEVICE is still in use after `MOST_S` seconds.
"""

import errno
import os
import sys
from select import select
from time import monotonic

MOST_S = 10.0
"""Time limit in seconds."""
POLL_S = 0.002
"""Interval in seconds between two attempts to open a device."""


def release(file: str, devices: "list[str]") -> None:
    """Write to a file, and wait until each device can be claimed.

    Raises:
        OSError: the file cannot be written, or a device cannot be opened or is still in use at the time limit.
    """
    with open(file, "w") as opened:
        opened.write("1")
    end = monotonic() + MOST_S
    for device in devices:
        while not claimable(device):
            if monotonic() > end:
                raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), device)
            select([], [], [], POLL_S)


def claimable(device: str) -> bool:
    """Return whether a device can be opened with O_EXCL.

    Raises:
        OSError: the device cannot be opened for another reason than its use.
    """
    try:
        os.close(os.open(device, os.O_RDONLY | os.O_EXCL))
    except OSError as error:
        if error.errno != errno.EBUSY:
            raise
        return False
    return True


if __name__ == "__main__":
    try:
        release(sys.argv[1], sys.argv[2:])
    except OSError as error:
        sys.exit(str(error))
