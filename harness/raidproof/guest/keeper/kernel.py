# No pathlib: a machine may have a minimal Python.
"""State in the kernel of a machine: sysctls, disk queues, qdiscs, mounts, md and dm devices on the member disks."""

from __future__ import annotations

import glob
import json
import os
import re
import signal
from contextlib import suppress
from typing import Any

from . import config, programs

BLOCK = "/sys/class/block"
UNMOUNT_S = 20.0
"""Time limit of one umount in seconds."""

Mount = dict[str, str]
"""A mount: its directory (``where``), device number, file system type and source."""


def read(path: str) -> str | None:
    """Return the content of a file in /proc or /sys, or None if the file cannot be read."""
    try:
        with open(path) as file:
            return file.read().rstrip("\n")
    except (OSError, UnicodeDecodeError):
        return None


def write(path: str, value: str, failures: list[str]) -> None:
    """Write a value to a file in /proc or /sys; append a message to ``failures`` if the kernel refuses the value."""
    try:
        with open(path, "w") as file:
            file.write(value)
    except OSError as error:
        failures.append(f"the kernel refuses {value!r} in {path}: {error.strerror}")


def sysctls() -> dict[str, str]:
    """Return the values of the writable sysctls in `config.SYSCTLS`, by path."""
    paths = [path for pattern in config.SYSCTLS for path in sorted(glob.glob(pattern)) if os.path.isfile(path)]
    values = {path: read(path) for path in paths if os.stat(path).st_mode & 0o200}
    return {path: value for path, value in values.items() if value is not None}


def restore_sysctls(saved: dict[str, str], failures: list[str]) -> None:
    """Write the sysctls whose present values differ from the saved ones.

    Of vm.dirty_bytes and vm.dirty_ratio one is always 0: the kernel clears one when the other is set. The same is true
    of the background limits. If the saved value is 0, write the other one.
    """
    now = sysctls()
    for path, value in saved.items():
        if now.get(path) == value or path not in now:
            continue
        partner = path.replace("_bytes", "_ratio") if "_bytes" in path else path.replace("_ratio", "_bytes")
        if partner != path and partner in saved and value == "0" and saved[partner] != "0":
            write(partner, saved[partner], failures)
        else:
            write(path, value, failures)
            now = sysctls()


def queues(disks: list[str]) -> dict[str, dict[str, str]]:
    """Return the queue settings of each disk, by the path of the disk in the request."""
    found = {}
    for disk in disks:
        name = os.path.basename(os.path.realpath(disk))
        values = {knob: read(f"/sys/block/{name}/{knob}") for knob in config.QUEUE}
        found[disk] = {knob: value for knob, value in values.items() if value is not None}
    return found


def restore_queues(saved: dict[str, dict[str, str]], failures: list[str]) -> None:
    """Write the queue settings that differ from ``saved`` in order of `config.QUEUE`: one may change later ones."""
    for disk, values in saved.items():
        name = os.path.basename(os.path.realpath(disk))
        for knob in config.QUEUE:
            path = f"/sys/block/{name}/{knob}"
            now = read(path)
            if knob in values and now is not None and now != values[knob]:
                chosen = re.search(r"\[([\w-]+)\]", values[knob])
                write(path, chosen.group(1) if chosen else values[knob], failures)


def link(interface: str | None) -> dict[str, Any] | None:
    """Return the qdiscs and gso_max_segs of an interface; None if the interface or tc(8) does not exist."""
    if interface is None or not os.path.exists(f"/sys/class/net/{interface}"):
        return None
    listed = programs.run(["tc", "-j", "qdisc", "show", "dev", interface])
    detail = programs.run(["ip", "-d", "-j", "link", "show", "dev", interface])
    if listed.returncode or detail.returncode:
        return None
    qdiscs = [{"kind": one["kind"], "handle": one["handle"]} for one in json.loads(listed.stdout or "[]")]
    return {
        "qdiscs": qdiscs,
        "gso_max_segs": json.loads(detail.stdout)[0].get("gso_max_segs"),
        "ifb": os.path.exists(f"/sys/class/net/{config.INGRESS}"),
    }


def own_queues(saved: dict[str, Any] | None) -> list[str]:
    """Return the qdiscs that an administrator has set; the qdiscs that the kernel sets have the handle 0:."""
    return [f"{one['kind']} {one['handle']}" for one in (saved or {}).get("qdiscs", ()) if one["handle"] != "0:"]


def restore_link(interface: str | None, saved: dict[str, Any] | None, failures: list[str]) -> None:
    """Remove raidproof's qdiscs, after which the kernel sets its default ones; restore gso_max_segs."""
    now = link(interface)
    if saved is None or now is None or interface is None or now == saved:
        return
    if not own_queues(saved):
        for one in {"ingress" if kind in {"ingress", "clsact"} else "root" for kind in _kinds(now)}:
            # tc fails if the interface has only the kernel's default qdisc.
            programs.run(["tc", "qdisc", "del", "dev", interface, one])
    if not saved["ifb"] and now["ifb"]:
        programs.must(["ip", "link", "del", config.INGRESS], failures)
    if saved["gso_max_segs"] is not None and now["gso_max_segs"] != saved["gso_max_segs"]:
        programs.must(["ip", "link", "set", "dev", interface, "gso_max_segs", str(saved["gso_max_segs"])], failures)


def _kinds(found: dict[str, Any]) -> list[str]:
    return [one["kind"] for one in found["qdiscs"]]


def mounts() -> list[Mount]:
    """Return all mounts of this process's namespace, in the order in which they were mounted."""
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
    """Return the md and dm devices that consist of these disks only, a device before the devices below it."""
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
    """Return the mounts in raidproof's directories that the snapshot does not contain, the last mount first.

    Mounts in other directories remain, even if they use a member disk; the stop of the array then fails.
    """

    def ours(mount: Mount) -> bool:
        inside = any(mount["where"] == one or mount["where"].startswith(f"{one}/") for one in directories)
        return inside and _key(mount) not in {_key(one) for one in before}

    return [mount for mount in reversed(mounts()) if ours(mount)]


def _key(mount: Mount) -> tuple[str, str, str]:
    return mount["where"], mount["type"], mount["source"]


def unmount(directories: list[str], before: list[Mount], failures: list[str]) -> None:
    """Kill the processes that use raidproof's mounts, and unmount; lazily if the NFS server does not answer."""
    if not (ours := our_mounts(directories, before)):
        return
    for pid in programs.users([mount["where"] for mount in ours]):
        programs.end(pid, signal.SIGKILL)
    for mount in ours:
        network = mount["type"].startswith("nfs")
        ways = [["umount"], ["umount", "--force"], ["umount", "--lazy"]] if network else [["umount"]]
        if all(programs.run([*way, mount["where"]], UNMOUNT_S).returncode for way in ways):
            programs.must(["umount", mount["where"]], failures, UNMOUNT_S)


def stop_devices(disks: list[str], failures: list[str]) -> None:
    """Stop the md and dm devices on the member disks; the content of the disks does not change."""
    for name in made_of(disks):
        if name.startswith("md"):
            programs.must(["mdadm", "--stop", f"/dev/{name}"], failures)
        else:
            programs.must(["dmsetup", "remove", f"/dev/{name}"], failures)
