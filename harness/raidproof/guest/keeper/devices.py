# A minimal Python: no pathlib.
"""Mounts, and the md and dm devices on the member disks."""

from __future__ import annotations

import glob
import os
import re
import shutil
import signal
from contextlib import suppress

from . import config, programs

BLOCK = "/sys/class/block"
UNMOUNT_S = 20.0

Mount = dict[str, str]


def mounts() -> list[Mount]:
    """Return all mounts, in mount order."""
    found = []
    with open("/proc/self/mountinfo") as file:
        for line in file:
            left, _, right = line.partition(" - ")
            words, kind = left.split(), right.split()
            found.append({"where": _unescape(words[4]), "number": words[2], "type": kind[0], "source": kind[1]})
    return found


def _unescape(path: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match.group(1), 8)), path)


def made_of(disks: list[str]) -> list[str]:
    """Return the md and dm devices that consist of these disks only, the uppermost first."""
    names = {os.path.basename(os.path.realpath(disk)) for disk in disks}
    parts = {
        name for name in os.listdir(BLOCK) for disk in names if os.path.exists(f"{BLOCK}/{disk}/{name}/partition")
    }
    ours, above = names | parts, list[str]()
    while True:
        more = [
            name
            for name in sorted(os.listdir(BLOCK))
            if name not in ours and (slaves := _listed(f"{BLOCK}/{name}/slaves")) and set(slaves) <= ours
        ]
        if not more:
            return above
        ours.update(more)
        above = [*more, *above]


def _listed(path: str) -> list[str]:
    with suppress(OSError):
        return os.listdir(path)
    return []


def our_mounts(directories: list[str], before: list[Mount]) -> list[Mount]:
    """Return the mounts in raidproof's directories that the snapshot does not contain, the last one first.

    Mounts elsewhere are left alone, even if they use one of the disks: these disks are then reported as busy.
    """

    def ours(mount: Mount) -> bool:
        inside = any(mount["where"] == one or mount["where"].startswith(f"{one}/") for one in directories)
        return inside and _key(mount) not in {_key(one) for one in before}

    return [mount for mount in reversed(mounts()) if ours(mount)]


def _key(mount: Mount) -> tuple[str, str, str]:
    return mount["where"], mount["type"], mount["source"]


def unmount(directories: list[str], before: list[Mount], said: list[str]) -> None:
    """Unmount raidproof's mounts, ending processes that use them; lazily if the NFS server does not answer."""
    if not (ours := our_mounts(directories, before)):
        return
    for pid in programs.users([mount["where"] for mount in ours]):
        programs.end(pid, signal.SIGKILL)
    for mount in ours:
        network = mount["type"].startswith("nfs")
        ways = [["umount"], ["umount", "--force"], ["umount", "--lazy"]] if network else [["umount"]]
        if all(programs.run([*way, mount["where"]], UNMOUNT_S).returncode for way in ways):
            programs.must(["umount", mount["where"]], said, UNMOUNT_S)


def stop(disks: list[str], said: list[str]) -> None:
    """Stop the md and dm devices on raidproof's disks; the content of the disks stays."""
    for name in made_of(disks):
        if name.startswith("md"):
            programs.must(["mdadm", "--stop", f"/dev/{name}"], said)
        else:
            programs.must(["dmsetup", "remove", f"/dev/{name}"], said)


def missing(directories: list[str]) -> list[str]:
    """Return the folders that must be created so that these directories exist, the deepest first."""
    absent = set()
    for directory in directories:
        path = os.path.abspath(directory)
        while not os.path.exists(path):
            absent.add(path)
            path = os.path.dirname(path)
    return sorted(absent, reverse=True)


def remove_folders(were_missing: list[str]) -> None:
    """Remove folders that did not exist before, unless they are not empty."""
    for path in were_missing:
        with suppress(OSError):
            os.rmdir(path)


def absent() -> list[str]:
    """Return raidproof's folders that do not exist."""
    return [path for path in config.OUR_FOLDERS if not os.path.lexists(path)]


def remove_ours(were_absent: list[str]) -> None:
    """Remove raidproof's folders, with their content."""
    for path in were_absent:
        shutil.rmtree(path, ignore_errors=True)


def links() -> list[str]:
    """Return the links that raidproof created."""
    return sorted(glob.glob(config.OUR_LINKS))


def remove_links(before: list[str]) -> None:
    """Remove raidproof's links that did not exist before."""
    for path in set(links()) - set(before):
        with suppress(FileNotFoundError):
            os.unlink(path)
