"""The messages of level err or worse that this machine's kernel writes while a process watches its ring buffer.

The harness copies this file into machines, where it runs on a minimal Python: standard library only.
"""

import os

KMSG = "/dev/kmsg"
ERR = 3
"""The level err (syslog(2)); worse levels are smaller."""
LONGEST_RECORD = 8192
"""Size of the buffer of one read(2): a record may be longer than its text (CONSOLE_EXT_LOG_MAX of the kernel)."""
MOST_MESSAGES = 50
"""Greatest number of messages that one call of `KernelMessages.errors` returns."""


class KernelMessages:
    """The kernel's messages from the time at which the object was made. Raises OSError if /dev/kmsg cannot be read."""

    def __init__(self, path: str = KMSG) -> None:
        self._fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        self.errors()

    def errors(self) -> list[str]:
        """Return the texts of the kernel's messages of level err or worse since the last call."""
        found: list[str] = []
        while True:
            try:
                record = os.read(self._fd, LONGEST_RECORD)
            except BlockingIOError:
                return found[:MOST_MESSAGES]
            except BrokenPipeError:
                continue  # the kernel has overwritten records; the next read returns the oldest one that it has
            if not record:
                return found[:MOST_MESSAGES]
            if text := error_in(record):
                found.append(text)


def error_in(record: bytes) -> str:
    """Return the text of a record of /dev/kmsg, or an empty text if a process wrote it or its level is not an error.

    Format of a record: Documentation/ABI/testing/dev-kmsg of Linux.
    """
    head, _, rest = record.partition(b";")
    priority = int(head.split(b",", 1)[0])
    if priority > ERR:  # the bits above the level are the facility, which is 0 for the kernel
        return ""
    return rest.split(b"\n", 1)[0].decode(errors="replace")
