# A minimal Python: no pathlib.
"""The machine's own NFS server: describe it, stop it so that raidproof's can run, start it again."""

from __future__ import annotations

import os
import signal
from typing import Any

from . import config, programs
from .kernel import read, write

State = dict[str, Any]


def describe() -> State:
    """Return the units, the daemons and the settings of nfsd; nfsd is None if it is not loaded."""
    return {"units": units(), "daemons": programs.daemons(config.DAEMONS), "nfsd": nfsd()}


def units() -> dict[str, dict[str, str]]:
    """Return the state of each unit that systemd knows; empty without systemd."""
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
    """Whether an NFS server runs that would conflict with raidproof's."""
    busy = state["nfsd"] is not None and state["nfsd"]["threads"] != "0"
    return busy or any(one["name"] in config.SERVER_DAEMONS for one in state["daemons"])


def stop(said: list[str]) -> None:
    """Stop every NFS server of this machine, its own or raidproof's, and empty its tables."""
    found = units()
    if active := [name for name in config.SERVER_UNITS if found.get(name, {}).get("active") == "active"]:
        programs.must(["systemctl", "stop", *active], said)
    if (now := nfsd()) is not None:
        # Even without threads, nfsd's caches hold raidproof's file system open.
        if now["threads"] != "0":
            programs.must(["rpc.nfsd", "0"], said)
        programs.must(["exportfs", "-ua"], said)
        programs.must(["exportfs", "-f"], said)
    _end(programs.daemons(config.SERVER_DAEMONS), said)


def _end(daemons: list[dict[str, Any]], said: list[str]) -> None:
    # The workers of rpc.mountd end with it; there is no need to wait for a daemon that ignores SIGTERM.
    said += [
        f"{one['name']} (process {one['pid']}) does not end"
        for one in daemons
        if not programs.end(one["pid"], signal.SIGTERM) and not programs.end(one["pid"], signal.SIGKILL)
    ]


def set_knobs(saved: State, said: list[str]) -> None:
    """Restore the settings of nfsd, which must not run; set the kernel's defaults if it was not loaded."""
    now = nfsd()
    if now is None or now["threads"] != "0":
        return
    wanted: dict[str, str] = saved["nfsd"] or config.NFSD_USUAL
    for name in config.NFSD_KNOBS:
        value = wanted.get(name)
        if name == "max_block_size" and (value or "0") == "0":
            value = str(usual_block_size())  # 0 means "not yet decided" and cannot be written
        if value and now[name] != value:
            write(f"{config.NFSD}/{name}", value, said)


def usual_block_size() -> int:
    """Return nfsd's default block size in bytes: memory / 4096, 8 KiB to 1 MiB (nfsd_get_default_max_blksize)."""
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
        # systemd manages mounts and sockets itself.
        if name.endswith(".service")
    ]
    if stop_units:
        programs.must(["systemctl", "stop", *stop_units], said)
    known = {one["name"] for one in saved["daemons"]}
    _end([one for one in programs.daemons(config.DAEMONS) if one["name"] not in known], said)


def start(saved: State, said: list[str]) -> None:
    """Start the units and daemons that ran before and do not run now."""
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
    """Flush the kernel's export cache, so that the restored export table takes effect."""
    if nfsd() is not None:
        programs.must(["exportfs", "-f"], said)
