"""Files of /sys and /proc of a server, in the form in which grep prints them: ``PATH:VALUE``."""

import re

from pydantic import BaseModel, ConfigDict

from raidproof.existing.given import Given, shortened

_LINE = re.compile(r"^(/(?:sys|proc)/[^:\s]+):(.*)$")


class KernelFile(BaseModel):
    """The value of one file."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: str
    value: str
    source: str
    """The text that had the value, and the line."""

    @property
    def number(self) -> int | None:
        """The whole number with which the value begins, as in ``200000 (system)``; None without one."""
        found = re.match(r"([0-9]{1,18})(?:\s|$)", self.value)
        return int(found[1]) if found else None


def parse_kernel_files(file: Given) -> dict[str, KernelFile]:
    """Return the files by path, from the output of ``grep . /sys/block/*/queue/write_cache``, for example.

    Raises:
        RequestError: a line is not ``PATH:VALUE`` with a path in /sys or /proc.
    """
    files = {}
    for number, line in file.lines():
        if not line.strip():
            continue
        found = _LINE.match(line)
        if found is None:
            file.refuse(
                number,
                f"not /sys/...:VALUE: {shortened(line)!r}",
                "write it with: grep . /sys/block/*/queue/write_cache",
            )
        files[found[1]] = KernelFile(path=found[1], value=found[2].strip(), source=file.at(number))
    return files
