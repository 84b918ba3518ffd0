# A minimal Python: no pathlib.
"""The machine's own NFS server: described, stopped so that ours can run, started again."""

from __future__ import annotations

import os
import signal
from typing import Any

from . import config, programs
from .knobs import read, write

State = dict[str, Any]


def describe() -> State:
    """Return units, daemons, and what nfsd has been told; nfsd is None where it is not loaded."""
    return {"units": units(), "daemons": programs.daemons(config.DAEMONS), "nfsd": nfsd()}


def units() -> dict[str, dict[str, str]]:
    """Return the state of each unit that systemd knows; nothing where there is no systemd."""
    if not os.path.isdir("/run/systemd/system"):
        return {}
    asked = "--property=Id,LoadState,ActiveState,UnitFileState"
    found = {}
    for block in programs.run(["systemctl", "show", asked, *config.UNITS]).stdout.split("\n\n"):
        values = dict(line.split("=", 1) for line in block.splitlines() if "=" in line)
        if values.get("LoadState") in {"loaded", "masked"}:
            found[values["Id"]] = {"active": values["ActiveState"], "file": values["UnitFileState"]}
    return found


def nfsd() -> dict[str, str] | None:
    """Return nfsd's threads, ports and knobs."""
    threads = read(f"{config.NFSD}/threads")
    if threads is None:
        return None
    names = ("portlist", *config.NFSD_KNOBS)
    return {"threads": threads, **{name: read(f"{config.NFSD}/{name}") or "" for name in names}}


def serving(state: State) -> bool:
    """Whether there is an NFS server that would be in our way."""
    busy = state["nfsd"] is not None and state["nfsd"]["threads"] != "0"
    return busy or any(one["name"] in config.SERVER_DAEMONS for one in state["daemons"])


def stop(said: list[str]) -> None:
    """Stop every NFS server of this machine, its own or ours, and empty its tables."""
    found = units()
    if active := [name for name in config.SERVER_UNITS if found.get(name, {}).get("active") == "active"]:
        programs.must(["systemctl", "stop", *active], said)
    if (now := nfsd()) is not None:
        # Also where it serves nothing any more, its caches hold our file system open.
        if now["threads"] != "0":
            programs.must(["rpc.nfsd", "0"], said)
        programs.must(["exportfs", "-ua"], said)
        programs.must(["exportfs", "-f"], said)
    _end(programs.daemons(config.SERVER_DAEMONS), said)


def _end(daemons: list[dict[str, Any]], said: list[str]) -> None:
    # rpc.mountd's workers end with it, and a daemon that does not listen is not worth waiting for.
    said += [
        f"{one['name']} (process {one['pid']}) does not end"
        for one in daemons
        if not programs.end(one["pid"], signal.SIGTERM) and not programs.end(one["pid"], signal.SIGKILL)
    ]


def set_knobs(saved: State, said: list[str]) -> None:
    """Tell nfsd, which must not run, what it had been told. Its usual values, where it was not loaded."""
    now = nfsd()
    if now is None or now["threads"] != "0":
        return
    wanted: dict[str, str] = saved["nfsd"] or config.NFSD_USUAL
    for name in config.NFSD_KNOBS:
        value = wanted.get(name)
        if name == "max_block_size" and (value or "0") == "0":
            value = str(usual_block_size())  # 0 is "not yet decided", which cannot be said again
        if value and now[name] != value:
            write(f"{config.NFSD}/{name}", value, said)


def usual_block_size() -> int:
    """Return what nfsd decides by itself: 1/4096 of the memory, from 8 KiB to 1 MiB (nfsd_get_default_max_blksize)."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    size = 1 << 20
    while size > memory >> 12 and size >= 16 << 10:
        size //= 2
    return size


def end_strangers(saved: State, said: list[str]) -> None:
    """Stop the daemons that did not run before: mounts start rpc.statd."""
    before, now = saved["units"], units()
    stop_units = [
        name
        for name, unit in now.items()
        if unit["active"] == "active" and before.get(name, {}).get("active") in {"inactive", "failed"}
        # Mounts and sockets are systemd's own affair.
        if name.endswith(".service")
    ]
    if stop_units:
        programs.must(["systemctl", "stop", *stop_units], said)
    known = {one["name"] for one in saved["daemons"]}
    _end([one for one in programs.daemons(config.DAEMONS) if one["name"] not in known], said)


def start(saved: State, said: list[str]) -> None:
    """Start again what ran before and does not now."""
    now = units()
    wanted = [name for name, unit in saved["units"].items() if unit["active"] == "active"]
    if idle := [name for name in wanted if now.get(name, {}).get("active") != "active"]:
        programs.must(["systemctl", "start", *idle], said)
    running = {one["name"] for one in programs.daemons(config.DAEMONS)}
    for one in saved["daemons"]:
        if not one["unit"] and one["name"] not in running:
            programs.launch(one["argv"], said)
            running.add(one["name"])
    threads = (saved["nfsd"] or {}).get("threads", "0")
    if (found := nfsd()) is not None and found["threads"] != threads:
        ports = {line.split()[1] for line in saved["nfsd"]["portlist"].splitlines() if len(line.split()) == 2}
        port = ["-p", ports.pop()] if len(ports) == 1 and found["threads"] == "0" else []
        programs.must(["rpc.nfsd", *port, threads], said)


def flush(said: list[str]) -> None:
    """Let the kernel forget exports, so that it asks by the table that was put back."""
    if nfsd() is not None:
        programs.must(["exportfs", "-f"], said)
