# A minimal Python: no pathlib.
"""Command line of the keeper: ``python3 -m keeper COMMAND [RUN]`` on the machine, as root; prints one JSON object.

``take``     read orders from standard input, save all that the run may change; refuse if a snapshot exists
``settle``   stop the machine's own NFS server, if the orders allow it, and save what it wrote until then
``restore``  restore everything, compare, and discard the snapshot if nothing differs
``compare``  report what differs, change nothing
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
    """Return the id of this boot."""
    return kernel.read("/proc/sys/kernel/random/boot_id") or ""


def take(run: str) -> Answer:
    """Save everything; nothing may have been changed before."""
    orders = json.load(sys.stdin)
    if runs := store.complete():
        store.sweep()
        return {"unrestored": runs}
    snapshot = look(orders)
    store.commit(run, snapshot, os.path.dirname(os.path.abspath(__file__)))
    # Not earlier: this program itself lies in a folder that sweep removes.
    store.sweep()
    return {"snapshot": snapshot}


def look(orders: Answer) -> Answer:
    """Return all that a snapshot saves."""
    server = nfs.describe()
    # A daemon that is not raidproof's continues to write.
    skip = list(config.PEERS) if any(one["name"] == "rpc.statd" for one in server["daemons"]) else []
    return {
        "version": 1,
        "orders": orders,
        "boot_id": boot_id(),
        "skip": skip,
        "trees": store.save(roots(orders), skip),
        "sysctls": kernel.sysctls(),
        "queues": kernel.queues(orders["disks"]),
        "link": kernel.link(orders["interface"]),
        "nfs": server,
        "mounts": kernel.mounts(),
        "missing": store.missing(orders["directories"]),
        "absent": store.absent(),
        "links": store.links(),
    }


def roots(orders: Answer) -> list[str]:
    """Return the paths whose files are saved as bytes."""
    return [*config.CONFIGURATION, config.NFS_STATE, orders["runtime"]]


def settle(run: str) -> Answer:
    """Stop the machine's own NFS server, so that raidproof's can run."""
    snapshot = loaded(run)
    said: list[str] = []
    if snapshot["orders"]["role"] == "server":
        if nfs.serving(snapshot["nfs"]):
            if not snapshot["orders"]["stop_nfs"]:
                return {"serving": [one["name"] for one in snapshot["nfs"]["daemons"]]}
            nfs.stop(said)
        if not said:
            store.add(run, store.SETTLED, {"trees": store.save(config.CLIENT_RECORDS)})
    return {"failed": said}


def loaded(run: str) -> Answer:
    """Return a snapshot, merged with what ``settle`` saved later."""
    snapshot = store.load(run, store.SNAPSHOT)
    if snapshot is None:
        raise SystemExit(f"no snapshot {run} here")
    settled = store.load(run, store.SETTLED)
    if settled is None:
        # raidproof has not written there.
        snapshot["skip"] += config.CLIENT_RECORDS
    kept = {path: entry for path, entry in snapshot["trees"].items() if not within(path, config.CLIENT_RECORDS)}
    snapshot["trees"] = {**kept, **(settled or {}).get("trees", {})}
    snapshot["settled"] = settled is not None
    return snapshot


def within(path: str, roots_: tuple[str, ...]) -> bool:
    """Whether a path is one of these or lies below one."""
    return any(path == root or path.startswith(f"{root}/") for root in roots_)


def restore(run: str) -> Answer:
    """Restore everything; report what cannot be restored, and continue with the rest."""
    snapshot, said = loaded(run), list[str]()
    orders, server = snapshot["orders"], snapshot["nfs"]
    disks, directories = orders["disks"], orders["directories"]
    ours = nfs_is_ours(snapshot)
    if ours:
        nfs.stop(said)
    kernel.unmount(directories, snapshot["mounts"], said)
    kernel.stop_devices(disks, said)
    nfs.end_strangers(server, said)
    kernel.restore_link(orders["interface"], snapshot["link"], said)
    kernel.restore_sysctls(snapshot["sysctls"], said)
    kernel.restore_queues(snapshot["queues"], said)
    store.remove_links(snapshot["links"])
    replaced = store.restore(snapshot["trees"], roots(orders), skip_of(snapshot, ours=ours))
    store.remove_folders(snapshot["missing"])
    store.remove_ours(snapshot["absent"])
    if ours:
        nfs.set_knobs(server, said)
        nfs.start(server, said)
        # A server that starts rewrites its tables.
        tables = {path: entry for path, entry in snapshot["trees"].items() if path in config.TABLES}
        store.restore(tables, config.TABLES)
        nfs.flush(said)
    different = differences(run, ours=ours)
    if not said and not different:
        store.discard(run)
    return {"failed": said, "differences": different, "replaced": replaced}


def nfs_is_ours(snapshot: Answer) -> bool:
    """Whether raidproof set up the running NFS server: not if the machine has booted since and runs its own again."""
    before, now = snapshot["nfs"], nfs.describe()
    if snapshot["orders"]["role"] != "server":
        return False
    if not snapshot["settled"]:
        # The run got no further than stopping the machine's own server.
        return nfs.serving(before) and not nfs.serving(now)
    if snapshot["boot_id"] == boot_id():
        return True
    table = kernel.read(config.TABLES[0]) or ""
    exported = any(line.split("\t")[0] in snapshot["orders"]["directories"] for line in table.splitlines())
    strange = not before["daemons"] and nfs.serving(now)
    return exported or strange or (nfs.serving(before) and not nfs.serving(now))


def skip_of(snapshot: Answer, *, ours: bool) -> list[str]:
    """Return the paths that are not restored: those that a running server writes, and /run of an earlier boot."""
    orders, skip = snapshot["orders"], list(snapshot["skip"])
    if orders["role"] == "server" and not ours and nfs.serving(snapshot["nfs"]):
        skip.append(config.NFS_STATE)
    if orders["runtime"] in snapshot["trees"] and snapshot["boot_id"] != boot_id():
        skip.append(orders["runtime"])
    return skip


def differences(run: str, *, ours: bool) -> list[str]:
    """Return a description of each difference from the snapshot."""
    before = loaded(run)
    now = look(before["orders"])
    skip = skip_of(before, ours=ours)
    if nfs.serving(before["nfs"]):
        # A server that was started again has new client records.
        skip += config.CLIENT_RECORDS
    saved = {path: entry for path, entry in before["trees"].items() if not within(path, tuple(skip))}
    said = store.differences(saved, store.save(roots(before["orders"]), skip))
    # Modules that were loaded since add their own sysctls.
    known = {path: value for path, value in now["sysctls"].items() if path in before["sysctls"]}
    said += _other("sysctl", {path: before["sysctls"][path] for path in known}, known)
    said += _other("queue", before["queues"], now["queues"]) + _other("link", before["link"], now["link"])
    said += _other("nfs", _server(before["nfs"]), _server(now["nfs"]))
    orders = before["orders"]
    said += [f"still mounted: {one['where']}" for one in kernel.our_mounts(orders["directories"], before["mounts"])]
    said += [f"still online: {name}" for name in kernel.made_of(orders["disks"])]
    appeared = set(now["links"]) - set(before["links"])
    for what in ("missing", "absent"):
        appeared |= set(before[what]) - set(now[what])
    said += [f"still there: {path}" for path in sorted(appeared)]
    return said


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
        return [f"{what}: was {before}, is {now}"]
    keys = sorted({*before, *now})
    return [line for key in keys for line in _other(f"{what}: {key}", before.get(key), now.get(key))]


def compare(run: str) -> Answer:
    """Report what differs from the snapshot."""
    return {"differences": differences(run, ours=nfs_is_ours(loaded(run)))}


COMMANDS: dict[str, Callable[[str], Answer]] = {
    "take": take,
    "settle": settle,
    "restore": restore,
    "compare": compare,
}

if __name__ == "__main__":
    print(json.dumps(COMMANDS[sys.argv[1]](sys.argv[2])))
