# A minimal Python, where each import costs: no pathlib.
"""Inspects disks of a machine; read-only: it opens nothing for writing.

The harness sends this file to the machine, where it runs on a minimal Python, as root: ``python3 - PATH...``. It
prints lines of words separated by tabs: ``machine ID``; ``link PATH NUMBER`` or ``dangling PATH`` for each path that
exists; then, for each block device behind these paths, a line for each fact, as ``mount 8:16 /srv``; and ``end`` as
the last line.
"""

import os
import stat
import sys
from collections.abc import Iterator

GONE = (FileNotFoundError, NotADirectoryError, ProcessLookupError)
"""Errors that mean "does not exist". Any other error ends the program: unreadable is not the same as missing."""
SPAN = 1 << 20
"""Bytes at each end that must be zero on a blank disk."""
MARK = 4096
"""Size of a mark in bytes; a mark is never user data."""
MAGIC = b"raidproof mark "


def say(*words: object) -> None:
    """Print a line."""
    print("\t".join(" ".join(str(word).split()) for word in words))


def content(path: str) -> str:
    """Return the content of a small kernel file; empty if it does not exist."""
    try:
        with open(path, errors="replace") as file:
            return file.read().strip()
    except GONE:
        return ""


def told(path: str) -> str:
    """Return an attribute that a device reports; empty if it does not report one."""
    try:
        return content(path)
    except OSError:
        return ""


def listed(directory: str) -> list[str]:
    """Return the names in a directory; empty if it does not exist."""
    try:
        return sorted(os.listdir(directory))
    except GONE:
        return []


def number_of(path: str) -> str:
    """Return the number (major:minor) of the block device behind a path; empty if it is not a block device."""
    try:
        found = os.stat(path)
    except GONE:
        return ""
    return f"{os.major(found.st_rdev)}:{os.minor(found.st_rdev)}" if stat.S_ISBLK(found.st_mode) else ""


def target(path: str) -> str:
    """Return the target of a symbolic link; empty if it does not exist."""
    try:
        return os.readlink(path)
    except GONE:
        return ""


def tree(number: str, loops: dict[str, list[str]]) -> dict[str, str]:
    """Return the names, by number, of a device, of its partitions, and of all devices that are stacked on them."""
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
    """Return the loop devices on block devices, by device number: ``holders`` in sysfs does not list them."""
    found: dict[str, list[str]] = {}
    for name in listed("/sys/block"):
        behind = content(f"/sys/block/{name}/loop/backing_file")
        if behind and (number := number_of(behind)):
            found.setdefault(number, []).append(content(f"/sys/block/{name}/dev"))
    return found


def unescaped(word: str) -> str:
    """Return a path from a kernel table without its octal escapes."""
    for escape, character in (("\\040", " "), ("\\011", " "), ("\\012", " "), ("\\134", "\\")):
        word = word.replace(escape, character)
    return word


def mounts() -> Iterator[tuple[str, str]]:
    """Yield device number and directory of every mount, as this process and as PID 1 see them."""
    for line in f"{content('/proc/self/mountinfo')}\n{content('/proc/1/mountinfo')}".splitlines():
        before, _, after = line.partition(" - ")
        words, behind = before.split(" "), after.split(" ")
        yield words[2], unescaped(words[4])
        # btrfs and overlayfs have anonymous device numbers: use the mount source, too.
        if len(behind) > 1 and behind[1].startswith("/"):
            yield number_of(unescaped(behind[1])), unescaped(words[4])


def swaps() -> Iterator[tuple[str, str]]:
    """Yield device number and path of every swap device."""
    for line in content("/proc/swaps").splitlines()[1:]:
        path = unescaped(line.split()[0])
        yield number_of(path), path


def openers() -> Iterator[tuple[str, str]]:
    """Yield device number and process of every block device that a process has open."""
    for process in listed("/proc"):
        if not process.isdecimal() or int(process) == os.getpid():
            continue
        for descriptor in listed(f"/proc/{process}/fd"):
            path = f"/proc/{process}/fd/{descriptor}"
            # Sockets and pipes have no path. A file that hangs, as on a dead NFS server, meets the caller's deadline.
            if target(path).startswith("/") and (number := number_of(path)):
                yield number, f"{content(f'/proc/{process}/comm')} ({process})"


def look(number: str, size: int) -> None:
    """Print whether the kernel grants exclusive access to a device, and what its first and last bytes contain."""
    # By number: a path could meanwhile lead to another device.
    name = os.path.basename(os.path.realpath(f"/sys/dev/block/{number}"))
    path = "/dev/" + name.replace("!", "/")
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_EXCL | os.O_CLOEXEC))
    except OSError as error:
        say("claimed", number, error.strerror)
    device = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if number != f"{os.major(os.fstat(device).st_rdev)}:{os.minor(os.fstat(device).st_rdev)}":
            say("unknown", number, f"{path} is another device")
        span = min(SPAN, size // 2)
        first, last = os.pread(device, span, 0), os.pread(device, span, size - span)
    finally:
        os.close(device)
    if len(first) != span or len(last) != span:
        say("unknown", number, "could not be read to its ends")
    for word, block in (("first", first[:MARK]), ("last", last[-MARK:])):
        if block.startswith(MAGIC):
            say(word, number, block.hex())
    zero = bytes(MARK)
    begin = first[MARK:] if first.startswith(MAGIC) else first
    end = last[:-MARK] + (zero if last[-MARK:].startswith(MAGIC) else last[-MARK:])
    say("blank", number, int(not any(begin) and not any(end)))


def describe(number: str, loops: dict[str, list[str]], tables: dict[str, list[tuple[str, str]]]) -> None:
    """Print all that the kernel reports about a device."""
    home = f"/sys/dev/block/{number}"
    family = tree(number, loops)
    say("disk", number, family.get(number, ""))
    size = int(content(f"{home}/size") or 0) * 512
    say("size", number, size)
    say("ro", number, content(f"{home}/ro"))
    for word, files in (
        ("model", ("device/model",)),
        ("serial", ("serial", "device/serial")),
        ("wwn", ("wwid", "device/wwid")),
    ):
        if value := next((found for file in files if (found := told(f"{home}/{file}"))), ""):
            say(word, number, value)
    for other, name in family.items():
        if other != number:
            is_part = os.path.exists(f"/sys/dev/block/{other}/partition")
            say("partition" if is_part else "holder", number, name)
    for word, table in tables.items():
        for value in sorted({value for other, value in table if other in family}):
            say(word, number, value)
    try:
        look(number, size)
    except OSError as error:
        say("unknown", number, f"could not be read: {error.strerror}")


def main(paths: list[str]) -> None:
    """Inspect the disks behind the paths, and print the findings."""
    if os.geteuid() != 0:
        sys.exit("not root: who uses a disk could not be found out")
    if not content("/proc/self/mountinfo"):
        say("incomplete", "/proc/self/mountinfo")
    behind = loops()
    tables = {"mount": list(mounts()), "swap": list(swaps()), "opener": list(openers())}
    say("machine", content("/etc/machine-id"))
    numbers = []
    for path in paths:
        if number := number_of(path):
            say("link", path, number)
            numbers.append(number)
        elif os.path.lexists(path):
            say("dangling", path)
    for number in sorted(set(numbers)):
        describe(number, behind, tables)
    say("end")


if __name__ == "__main__":
    main(sys.argv[1:])
