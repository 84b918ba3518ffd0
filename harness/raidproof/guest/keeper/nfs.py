# No pathlib: a machine may have a minimal Python.
"""The NFS server of the machine: its state, its stop before raidproof's server runs, and its start afterwards."""

from __future__ import annotations

import os
import signal
from typing import Any

from . import config, programs
from .kernel import read, write

State = dict[str, Any]


def describe() -> State:
    """Return the state of the NFS server: units, daemons, and settings of nfsd (None if nfsd is not loaded)."""
    return {"units": units(), "daemons": programs.daemons(config.DAEMONS), "nfsd": nfsd()}


def units() -> dict[str, dict[str, str]]:
    """Return the state of each loaded or masked unit of `config.UNITS`; empty on a machine without systemd."""
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
    """Return nfsd's threads, ports and settings; None if nfsd is not loaded."""
    threads = read(f"{config.NFSD}/threads")
    if threads is None:
        return None
    names = ("portlist", *config.NFSD_KNOBS)
    return {"threads": threads, **{name: read(f"{config.NFSD}/{name}") or "" for name in names}}


def serving(state: State) -> bool:
    """Return whether an NFS server runs in this state; raidproof's NFS server cannot run beside it."""
    busy = state["nfsd"] is not None and state["nfsd"]["threads"] != "0"
    return busy or any(one["name"] in config.SERVER_DAEMONS for one in state["daemons"])


def stop(failures: list[str]) -> None:
    """Stop the NFS server, the machine's own or raidproof's, and empty the table of exports and nfsd's caches."""
    found = units()
    if active := [name for name in config.SERVER_UNITS if found.get(name, {}).get("active") == "active"]:
        programs.must(["systemctl", "stop", *active], failures)
    if (now := nfsd()) is not None:
        # nfsd's caches keep the exported file system in use, even if nfsd has no threads.
        if now["threads"] != "0":
            programs.must(["rpc.nfsd", "0"], failures)
        programs.must(["exportfs", "-ua"], failures)
        programs.must(["exportfs", "-f"], failures)
    _end(programs.daemons(config.SERVER_DAEMONS), failures)


def _end(daemons: list[dict[str, Any]], failures: list[str]) -> None:
    # SIGTERM first; SIGKILL if the daemon ignores it. The worker processes of rpc.mountd end with rpc.mountd.
    failures += [
        f"{one['name']} (process {one['pid']}) still runs after SIGKILL"
        for one in daemons
        if not programs.end(one["pid"], signal.SIGTERM) and not programs.end(one["pid"], signal.SIGKILL)
    ]


def set_knobs(saved: State, failures: list[str]) -> None:
    """Restore the settings of nfsd if it is loaded and has no threads; the kernel's defaults if it was not loaded."""
    now = nfsd()
    if now is None or now["threads"] != "0":
        return
    wanted: dict[str, str] = saved["nfsd"] or config.NFSD_USUAL
    for name in config.NFSD_KNOBS:
        value = wanted.get(name)
        if name == "max_block_size" and (value or "0") == "0":
            value = str(usual_block_size())  # nfsd prints 0 before its first start, and refuses to be set to 0
        if value and now[name] != value:
            write(f"{config.NFSD}/{name}", value, failures)


def usual_block_size() -> int:
    """Return nfsd's default block size in bytes: memory / 4096, from 8 KiB to 1 MiB (nfsd_get_default_max_blksize)."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    size = 1 << 20
    while size > memory >> 12 and size >= 16 << 10:
        size //= 2
    return size


def end_strangers(saved: State, failures: list[str]) -> None:
    """Stop the NFS services and daemons that did not run at the snapshot: a mount, for example, starts rpc.statd."""
    before, now = saved["units"], units()
    stop_units = [
        name
        for name, unit in now.items()
        if unit["active"] == "active" and before.get(name, {}).get("active") in {"inactive", "failed"}
        # systemd starts and stops mounts and sockets when they are used.
        if name.endswith(".service")
    ]
    if stop_units:
        programs.must(["systemctl", "stop", *stop_units], failures)
    known = {one["name"] for one in saved["daemons"]}
    _end([one for one in programs.daemons(config.DAEMONS) if one["name"] not in known], failures)


def start(saved: State, failures: list[str]) -> None:
    """Start the units, daemons and nfsd threads that ran at the snapshot and do not run now."""
    now = units()
    wanted = [name for name, unit in saved["units"].items() if unit["active"] == "active"]
    if idle := [name for name in wanted if now.get(name, {}).get("active") != "active"]:
        programs.must(["systemctl", "start", *idle], failures)
    running = {one["name"] for one in programs.daemons(config.DAEMONS)}
    for one in saved["daemons"]:
        if not one["unit"] and one["name"] not in running:
            programs.launch(one["argv"], failures)
            running.add(one["name"])
    threads = (saved["nfsd"] or {}).get("threads", "0")
    if (found := nfsd()) is not None and found["threads"] != threads:
        ports = {line.split()[1] for line in saved["nfsd"]["portlist"].splitlines() if len(line.split()) == 2}
        port = ["-p", ports.pop()] if len(ports) == 1 and found["threads"] == "0" else []
        programs.must(["rpc.nfsd", *port, threads], failures)


def flush(failures: list[str]) -> None:
    """Flush the kernel's export cache, so that the restored export table takes effect."""
    if nfsd() is not None:
        programs.must(["exportfs", "-f"], failures)
