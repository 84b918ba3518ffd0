# No pathlib: a machine may have a minimal Python.
"""Command line of the keeper: ``python3 -m keeper COMMAND RUN`` on the machine, as root; it prints one JSON object.

``take``     read the request (JSON) from standard input, and save the state that the run may change; refuse if the
             snapshot of another run exists
``settle``   stop the machine's own NFS server if the request allows this, and save the client records of the server
``restore``  restore the saved state, compare, and remove the snapshot if nothing differs
``compare``  report the differences from the saved state, and change nothing

The request has the machine's role, member disks, directories, network interface and runtime folder.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any

from . import config, kernel, nfs, store

Answer = dict[str, Any]


def boot_id() -> str:
    """Return the kernel's id of the present boot."""
    return kernel.read("/proc/sys/kernel/random/boot_id") or ""


def take(run: str) -> Answer:
    """Save the state of the machine, before raidproof changes it."""
    request = json.load(sys.stdin)
    if runs := store.complete():
        store.sweep()
        return {"unrestored": runs}
    snapshot = present_state(request)
    store.commit(run, snapshot, os.path.dirname(os.path.abspath(__file__)))
    # After the commit: sweep removes the folder from which this program runs.
    store.sweep()
    return {"snapshot": snapshot}


def present_state(request: Answer) -> Answer:
    """Return the present state of the machine, in the form of a snapshot."""
    server = nfs.describe()
    # The machine's own rpc.statd runs on and writes these files.
    skip = list(config.PEERS) if any(one["name"] == "rpc.statd" for one in server["daemons"]) else []
    return {
        "version": 1,
        "orders": request,
        "boot_id": boot_id(),
        "skip": skip,
        "trees": store.save(roots(request), skip),
        "sysctls": kernel.sysctls(),
        "queues": kernel.queues(request["disks"]),
        "link": kernel.link(request["interface"]),
        "nfs": server,
        "mounts": kernel.mounts(),
        "missing": store.missing(request["directories"]),
        "absent": store.absent(),
        "links": store.links(),
    }


def roots(request: Answer) -> list[str]:
    """Return the paths of the files and folders whose bytes are saved."""
    return [*config.CONFIGURATION, config.NFS_STATE, request["runtime"]]


def settle(run: str) -> Answer:
    """Stop the machine's own NFS server, so that raidproof can run its NFS server, and save the client records."""
    snapshot = loaded(run)
    failures: list[str] = []
    if snapshot["orders"]["role"] == "server":
        if nfs.serving(snapshot["nfs"]):
            if not snapshot["orders"]["stop_nfs"]:
                return {"serving": [one["name"] for one in snapshot["nfs"]["daemons"]]}
            nfs.stop(failures)
        if not failures:
            store.add(run, store.SETTLED, {"trees": store.save(config.CLIENT_RECORDS)})
    return {"failed": failures}


def loaded(run: str) -> Answer:
    """Return the snapshot of a run, with the client records that ``settle`` saved later."""
    snapshot = store.load(run, store.SNAPSHOT)
    if snapshot is None:
        raise SystemExit(f"this machine has no snapshot of run {run}")
    settled = store.load(run, store.SETTLED)
    if settled is None:
        # raidproof's NFS server has not run, so the client records are unchanged.
        snapshot["skip"] += config.CLIENT_RECORDS
    kept = {path: entry for path, entry in snapshot["trees"].items() if not within(path, config.CLIENT_RECORDS)}
    snapshot["trees"] = {**kept, **(settled or {}).get("trees", {})}
    snapshot["settled"] = settled is not None
    return snapshot


def within(path: str, roots_: tuple[str, ...]) -> bool:
    """Return whether a path is one of the paths in ``roots``, or below one of these paths."""
    return any(path == root or path.startswith(f"{root}/") for root in roots_)


def restore(run: str) -> Answer:
    """Restore the saved state; after a failed step, continue with the next step, and report the failure."""
    snapshot, failures = loaded(run), list[str]()
    request, server = snapshot["orders"], snapshot["nfs"]
    disks, directories = request["disks"], request["directories"]
    ours = nfs_is_ours(snapshot)
    if ours:
        nfs.stop(failures)
    kernel.unmount(directories, snapshot["mounts"], failures)
    kernel.stop_devices(disks, failures)
    nfs.end_strangers(server, failures)
    kernel.restore_link(request["interface"], snapshot["link"], failures)
    kernel.restore_sysctls(snapshot["sysctls"], failures)
    kernel.restore_queues(snapshot["queues"], failures)
    store.remove_links(snapshot["links"])
    replaced = store.restore(snapshot["trees"], roots(request), skip_of(snapshot, ours=ours))
    store.remove_folders(snapshot["missing"])
    store.remove_ours(snapshot["absent"])
    if ours:
        nfs.set_knobs(server, failures)
        nfs.start(server, failures)
        # At its start, an NFS server rewrites its tables.
        tables = {path: entry for path, entry in snapshot["trees"].items() if path in config.TABLES}
        store.restore(tables, config.TABLES)
        nfs.flush(failures)
    different = differences(run, ours=ours)
    if not failures and not different:
        store.discard(run)
    return {"failed": failures, "differences": different, "replaced": replaced}


def nfs_is_ours(snapshot: Answer) -> bool:
    """Return whether the running NFS server is raidproof's: after a boot, it may be the machine's own server again."""
    before, now = snapshot["nfs"], nfs.describe()
    if snapshot["orders"]["role"] != "server":
        return False
    if not snapshot["settled"]:
        # The run ended while it stopped the machine's own server, or before.
        return nfs.serving(before) and not nfs.serving(now)
    if snapshot["boot_id"] == boot_id():
        return True
    table = kernel.read(config.TABLES[0]) or ""
    exported = any(line.split("\t")[0] in snapshot["orders"]["directories"] for line in table.splitlines())
    strange = not before["daemons"] and nfs.serving(now)
    return exported or strange or (nfs.serving(before) and not nfs.serving(now))


def skip_of(snapshot: Answer, *, ours: bool) -> list[str]:
    """Return the paths that are not restored: those that a running server writes, and /run of an earlier boot."""
    request, skip = snapshot["orders"], list(snapshot["skip"])
    if request["role"] == "server" and not ours and nfs.serving(snapshot["nfs"]):
        skip.append(config.NFS_STATE)
    if request["runtime"] in snapshot["trees"] and snapshot["boot_id"] != boot_id():
        skip.append(request["runtime"])
    return skip


def differences(run: str, *, ours: bool) -> list[str]:
    """Return a description of each difference between the snapshot and the present state."""
    before = loaded(run)
    now = present_state(before["orders"])
    skip = skip_of(before, ours=ours)
    if nfs.serving(before["nfs"]):
        # After a stop and start, an NFS server has new client records.
        skip += config.CLIENT_RECORDS
    saved = {path: entry for path, entry in before["trees"].items() if not within(path, tuple(skip))}
    found = store.differences(saved, store.save(roots(before["orders"]), skip))
    # Modules that were loaded since the snapshot have added sysctls.
    known = {path: value for path, value in now["sysctls"].items() if path in before["sysctls"]}
    found += _other("sysctl", {path: before["sysctls"][path] for path in known}, known)
    found += _other("queue", before["queues"], now["queues"]) + _other("link", before["link"], now["link"])
    found += _other("nfs", _server(before["nfs"]), _server(now["nfs"]))
    request = before["orders"]
    found += [f"still mounted: {one['where']}" for one in kernel.our_mounts(request["directories"], before["mounts"])]
    found += [f"md or dm device still exists: {name}" for name in kernel.made_of(request["disks"])]
    appeared = set(now["links"]) - set(before["links"])
    for what in ("missing", "absent"):
        appeared |= set(before[what]) - set(now[what])
    found += [f"{path} still exists" for path in sorted(appeared)]
    return found


def _server(state: Answer) -> Answer:
    """Return the part of an NFS server's state that a restart does not change."""
    daemons = sorted({" ".join(one["argv"]) for one in state["daemons"]})
    nfsd = dict(state["nfsd"] or {})
    if nfsd.get("threads", "0") == "0":
        nfsd = {}
    elif nfsd.get("portlist"):
        nfsd["portlist"] = sorted(set(nfsd["portlist"].splitlines()))
    active = sorted(
        name for name, unit in state["units"].items() if unit["active"] == "active" and name.endswith(".service")
    )
    return {
        "daemons": daemons,
        "nfsd": nfsd,
        "active": active,
        "files": {k: u["file"] for k, u in state["units"].items()},
    }


def _other(what: str, before: Any, now: Any) -> list[str]:
    if before == now:
        return []
    if not isinstance(before, dict) or not isinstance(now, dict):
        return [f"{what}: was {before}, now {now}"]
    keys = sorted({*before, *now})
    return [line for key in keys for line in _other(f"{what}: {key}", before.get(key), now.get(key))]


def compare(run: str) -> Answer:
    """Report the differences between the snapshot and the present state."""
    return {"differences": differences(run, ours=nfs_is_ours(loaded(run)))}


COMMANDS: dict[str, Callable[[str], Answer]] = {
    "take": take,
    "settle": settle,
    "restore": restore,
    "compare": compare,
}

if __name__ == "__main__":
    print(json.dumps(COMMANDS[sys.argv[1]](sys.argv[2])))
