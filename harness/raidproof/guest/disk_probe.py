# No pathlib: on the minimal Python of a guest each import takes time.
"""Inspects disks of a machine and prints the facts; it opens all files read-only.

The harness sends this file to the machine, where it runs on a minimal Python, as root: ``python3 - PATH...``. It
prints lines of words separated by tabs: ``machine ID``; ``link PATH NUMBER`` for each path of a block device, or
``dangling PATH`` for a path that exists and leads to no block device; then, for each of these block devices, a line
for each fact, for example ``mount 8:16 /srv``; and ``end`` as the last line.
"""

import os
import stat
import sys
from collections.abc import Iterator

GONE = (FileNotFoundError, NotADirectoryError, ProcessLookupError)
"""Errors that mean that a file does not exist. Any other error ends the program: an unreadable file may exist."""
SPAN = 1 << 20
"""Bytes at the beginning and at the end of a disk that must be zero on a blank disk."""
MARK = 4096
"""Bytes of a mark, the block by which raidproof recognises its disks; a mark is not user data."""
MAGIC = b"raidproof mark "
"""First bytes of a mark."""


def report(*words: object) -> None:
    """Print a line of words, separated by tabs."""
    print("\t".join(" ".join(str(word).split()) for word in words))


def content(path: str) -> str:
    """Return the content of a file in /proc or /sys; empty if the file does not exist."""
    try:
        with open(path, errors="replace") as file:
            return file.read().strip()
    except GONE:
        return ""


def attribute(path: str) -> str:
    """Return an attribute of a device in sysfs; empty if the file does not exist or cannot be read."""
    try:
        return content(path)
    except OSError:
        return ""


def listed(directory: str) -> list[str]:
    """Return the sorted names in a directory; empty if the directory does not exist."""
    try:
        return sorted(os.listdir(directory))
    except GONE:
        return []


def number_of(path: str) -> str:
    """Return the device number (major:minor) of a block device's path; empty if the path leads to no block device."""
    try:
        found = os.stat(path)
    except GONE:
        return ""
    return f"{os.major(found.st_rdev)}:{os.minor(found.st_rdev)}" if stat.S_ISBLK(found.st_mode) else ""


def target(path: str) -> str:
    """Return the target of a symbolic link; empty if the link does not exist."""
    try:
        return os.readlink(path)
    except GONE:
        return ""


def tree(number: str, loops: dict[str, list[str]]) -> dict[str, str]:
    """Return the names, by device number, of a device, its partitions, and all devices that consist of them.

    ``loops``: the result of `loops`.
    """
    found: dict[str, str] = {}
    waiting = [number]
    while waiting:
        one = waiting.pop()
        home = os.path.realpath(f"/sys/dev/block/{one}")
        if one in found or not os.path.isdir(home):
            continue
        found[one] = os.path.basename(home)
        parts = [f"{home}/{name}" for name in listed(home) if os.path.exists(f"{home}/{name}/partition")]
        held = [f"{home}/holders/{name}" for name in listed(f"{home}/holders")]
        waiting += [content(f"{path}/dev") for path in (*parts, *held)]
        waiting += loops.get(one, [])
    return found


def loops() -> dict[str, list[str]]:
    """Return the numbers of loop devices, by the number of the block device below: they are no holders in sysfs."""
    found: dict[str, list[str]] = {}
    for name in listed("/sys/block"):
        behind = content(f"/sys/block/{name}/loop/backing_file")
        if behind and (number := number_of(behind)):
            found.setdefault(number, []).append(content(f"/sys/block/{name}/dev"))
    return found


def unescaped(word: str) -> str:
    """Return a path of a table in /proc without its octal escapes; tab and newline become a space."""
    for escape, character in (("\\040", " "), ("\\011", " "), ("\\012", " "), ("\\134", "\\")):
        word = word.replace(escape, character)
    return word


def mounts() -> Iterator[tuple[str, str]]:
    """Yield the device number and directory of every mount in the mount namespaces of this process and of PID 1."""
    for line in f"{content('/proc/self/mountinfo')}\n{content('/proc/1/mountinfo')}".splitlines():
        before, _, after = line.partition(" - ")
        words, behind = before.split(" "), after.split(" ")
        yield words[2], unescaped(words[4])
        # The mounts of btrfs and overlayfs have anonymous device numbers; their source is the device.
        if len(behind) > 1 and behind[1].startswith("/"):
            yield number_of(unescaped(behind[1])), unescaped(words[4])


def swaps() -> Iterator[tuple[str, str]]:
    """Yield the device number and path of every swap device."""
    for line in content("/proc/swaps").splitlines()[1:]:
        path = unescaped(line.split()[0])
        yield number_of(path), path


def openers() -> Iterator[tuple[str, str]]:
    """Yield the device number of every block device that a process has open, and the process's name and id."""
    for process in listed("/proc"):
        if not process.isdecimal() or int(process) == os.getpid():
            continue
        for descriptor in listed(f"/proc/{process}/fd"):
            path = f"/proc/{process}/fd/{descriptor}"
            # Sockets and pipes have no path. stat(2) may hang, for example on a dead NFS server: then the caller's
            # deadline ends this program.
            if target(path).startswith("/") and (number := number_of(path)):
                yield number, f"{content(f'/proc/{process}/comm')} ({process})"


def report_ends(number: str, size: int) -> None:
    """Print whether a device is claimed (O_EXCL), the marks in its first and last block, and if its ends are blank."""
    # The path is computed from the number: the requested path could by now lead to another device.
    name = os.path.basename(os.path.realpath(f"/sys/dev/block/{number}"))
    path = "/dev/" + name.replace("!", "/")
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_EXCL | os.O_CLOEXEC))
    except OSError as error:
        report("claimed", number, error.strerror)
    device = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if number != f"{os.major(os.fstat(device).st_rdev)}:{os.minor(os.fstat(device).st_rdev)}":
            report("unknown", number, f"{path} leads to another device than {number}")
        span = min(SPAN, size // 2)
        first, last = os.pread(device, span, 0), os.pread(device, span, size - span)
    finally:
        os.close(device)
    if len(first) != span or len(last) != span:
        report("unknown", number, "the first or last bytes of the disk could not be read")
    for word, block in (("first", first[:MARK]), ("last", last[-MARK:])):
        if block.startswith(MAGIC):
            report(word, number, block.hex())
    zero = bytes(MARK)
    begin = first[MARK:] if first.startswith(MAGIC) else first
    end = last[:-MARK] + (zero if last[-MARK:].startswith(MAGIC) else last[-MARK:])
    report("blank", number, int(not any(begin) and not any(end)))


def describe(number: str, loops: dict[str, list[str]], tables: dict[str, list[tuple[str, str]]]) -> None:
    """Print all facts about a device: size, identity, partitions, holders, users, marks."""
    home = f"/sys/dev/block/{number}"
    family = tree(number, loops)
    report("disk", number, family.get(number, ""))
    size = int(content(f"{home}/size") or 0) * 512
    report("size", number, size)
    report("ro", number, content(f"{home}/ro"))
    for word, files in (
        ("model", ("device/model",)),
        ("serial", ("serial", "device/serial")),
        ("wwn", ("wwid", "device/wwid")),
    ):
        if value := next((found for file in files if (found := attribute(f"{home}/{file}"))), ""):
            report(word, number, value)
    for other, name in family.items():
        if other != number:
            is_part = os.path.exists(f"/sys/dev/block/{other}/partition")
            report("partition" if is_part else "holder", number, name)
    for word, table in tables.items():
        for value in sorted({value for other, value in table if other in family}):
            report(word, number, value)
    try:
        report_ends(number, size)
    except OSError as error:
        report("unknown", number, f"the disk could not be read: {error.strerror}")


def main(paths: list[str]) -> None:
    """Inspect the disks to which the paths lead, and print the facts."""
    if os.geteuid() != 0:
        sys.exit("the disk probe needs root to find the users of a disk")
    if not content("/proc/self/mountinfo"):
        report("incomplete", "/proc/self/mountinfo")
    behind = loops()
    tables = {"mount": list(mounts()), "swap": list(swaps()), "opener": list(openers())}
    report("machine", content("/etc/machine-id"))
    numbers = []
    for path in paths:
        if number := number_of(path):
            report("link", path, number)
            numbers.append(number)
        elif os.path.lexists(path):
            report("dangling", path)
    for number in sorted(set(numbers)):
        describe(number, behind, tables)
    report("end")


if __name__ == "__main__":
    main(sys.argv[1:])
