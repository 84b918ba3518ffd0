"""The NFS mount of a client: its request, its commands, its effective state, and the mount of a machine."""

import re
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from raidproof.core.errors import RequestError, RigError
from raidproof.core.layer import PAGE_SIZE, Machine, Spec, State, Value, one_of, power_of_two, require_effective
from raidproof.core.units import KIB, MIB, Size, format_size
from raidproof.storage.server import NFS_PORT

DIRECTORY = "/mnt/raidproof"
"""Mount point of the export on a client."""
MOUNT_DEADLINE_S = 120.0
VERSIONS = ("3", "4.0", "4.1", "4.2")
_NO_PROTOCOL = {
    "udp": "distributions build the NFS client without it (CONFIG_NFS_DISABLE_UDP_SUPPORT), and NFSv4 never had it",
    "udp6": "distributions build the NFS client without it (CONFIG_NFS_DISABLE_UDP_SUPPORT), and NFSv4 never had it",
    "tcp6": "the lab's network is IPv4",
    "rdma": "the lab's machines have no RDMA device",
    "rdma6": "the lab's machines have no RDMA device",
}


def _read_version(value: Any) -> Any:
    word = str(value).lower().removeprefix("nfs").removeprefix("v")
    if word == "4":
        raise RequestError("NFS version 4 is a family: say 4.0, 4.1 or 4.2")
    return one_of("NFS version", word, VERSIONS)


def _read_protocol(value: Any) -> Any:
    if (reason := _NO_PROTOCOL.get(str(value).lower())) is not None:
        raise RequestError(f"proto {value}: {reason}; use tcp")
    return value


class MountSpec(Spec):
    """A requested mount. Sizes in bytes, times in seconds; None is not requested: the effective value is recorded.

    With ``sync`` the client sends each write before write() returns; without it, the client may delay sending until
    fsync() or close(), which breaks no promise.
    """

    vers: Annotated[Literal["3", "4.0", "4.1", "4.2"], BeforeValidator(_read_version)] = "4.2"
    rsize: Size | None = None
    wsize: Size | None = None
    sync: bool | None = None
    recovery: Literal["hard", "soft", "softerr"] = "hard"
    """What the client does if the server does not answer: retry for ever, or fail after ``retrans`` tries."""
    timeo_s: float | None = Field(default=None, gt=0, le=600)
    retrans: int | None = Field(default=None, ge=0, le=1000)
    nconnect: int | None = None
    actimeo: int | None = Field(default=None, ge=0)
    noac: bool = False
    proto: Annotated[Literal["tcp"], BeforeValidator(_read_protocol)] = "tcp"
    port: int | None = Field(default=None, ge=1, le=65535)

    @model_validator(mode="after")
    def _possible(self) -> Self:
        for name, size in (("rsize", self.rsize), ("wsize", self.wsize)):
            if size is not None:
                _refuse_transfer_size(name, size)
        if self.nconnect is not None and not 1 <= self.nconnect <= 16:
            raise RequestError(f"nconnect {self.nconnect}: a client opens 1 to 16 connections")
        if self.noac and self.actimeo:
            raise RequestError(f"noac caches no attributes, actimeo {self.actimeo} would: choose one")
        if self.noac and self.sync is False:
            raise RequestError("noac makes every write synchronous, so it cannot go with sync = false")
        if self.timeo_s is not None and abs(self.timeo_s * 10 - round(self.timeo_s * 10)) > 1e-9:
            raise RequestError(f"timeo_s {self.timeo_s}: the client counts in tenths of a second")
        return self

    def options(self) -> tuple[str, ...]:
        """The requested options of nfs(5)."""
        asked = {
            "vers": self.vers,
            "rsize": self.rsize,
            "wsize": self.wsize,
            "proto": self.proto,
            "port": self.port,
            "nconnect": self.nconnect,
            "timeo": None if self.timeo_s is None else round(self.timeo_s * 10),
            "retrans": self.retrans,
            "actimeo": self.actimeo,
            # No retries: the harness itself waits until the server is ready, under its own deadline.
            "retry": 0,
        }
        return (
            *(f"{name}={value}" for name, value in asked.items() if value is not None),
            self.recovery,
            *([] if self.sync is None else ["sync" if self.sync else "async"]),
            *(["noac"] if self.noac else []),
        )


def _refuse_transfer_size(name: str, size: int) -> None:
    written = f"{name} {format_size(size)}"
    if size > MIB:
        raise RequestError(f"{written}: client and server clamp it to 1MiB")
    if size < KIB:
        raise RequestError(f"{written}: the client replaces less than 1KiB by its default")
    # The client rounds down: to whole pages, and below a page to a power of two (nfs_io_size, Linux 6.0).
    if size % PAGE_SIZE and not (size < PAGE_SIZE and power_of_two(size)):
        raise RequestError(f"{written}: the client would round it down to whole pages of 4KiB")


NO_LAYOUT = "not configured"
"""Value in mountstats for NFSv4.1 and later without pNFS (nfs4_show_pnfs in fs/nfs/super.c)."""


class MountState(State):
    """The effective state of a mount, from /proc/self/mountstats, which includes all defaults."""

    source: str
    directory: str
    vers: str
    rsize: int
    wsize: int
    sync: bool
    recovery: str
    timeo_s: float
    retrans: int
    nconnect: int
    """Connections that are open to the server."""
    acregmin: int
    acregmax: int
    acdirmin: int
    acdirmax: int
    noac: bool
    proto: str
    port: int
    lease_s: int | None
    """The lease time of the server, for an NFSv4 client."""
    pnfs: str
    """The layout driver by which the client would write directly to data servers, or ``not configured``."""
    options: tuple[str, ...]


def mount_command(spec: MountSpec, source: str, directory: str = DIRECTORY) -> list[str]:
    """Return the command that mounts the export and creates the directory if needed."""
    return ["mount", "--mkdir", "--types", "nfs", "--options", ",".join(spec.options()), source, directory]


def parse_mountstats(text: str, directory: str = DIRECTORY) -> MountState:
    """Parse one mount of /proc/self/mountstats.

    Raises:
        RigError: no NFS file system is mounted there, or the output was cut off.
    """
    start = re.compile(rf"^device (\S+) mounted on {re.escape(directory)} with fstype nfs4? statvers=", re.MULTILINE)
    # Of stacked mounts the last one counts.
    entries = list(start.finditer(text))
    if not entries:
        raise RigError(f"no NFS mount on {directory}")
    entry = text[entries[-1].start() :].split("\ndevice ", maxsplit=1)[0]
    line = re.search(r"^\topts:\t(\S+)\n", entry, re.MULTILINE)
    # The operations come last: an entry without them was cut off.
    if line is None or "per-op statistics" not in entry:
        raise RigError(f"mountstats of {directory} are not whole: {entry[-300:]}")
    words = line.group(1).split(",")
    values = dict(word.split("=", 1) for word in words if "=" in word)
    lease = re.search(r"^\tnfsv4:\t.*\blease_time=(\d+)", entry, re.MULTILINE)
    layout = re.search(r"^\tnfsv4:\t.*\bpnfs=([^,\n]+)", entry, re.MULTILINE)
    try:
        return MountState(
            source=entries[-1].group(1),
            directory=directory,
            vers=values["vers"],
            rsize=int(values["rsize"]),
            wsize=int(values["wsize"]),
            sync="sync" in words,
            recovery=next(word for word in words if word in {"hard", "soft", "softerr"}),
            timeo_s=int(values["timeo"]) / 10,
            retrans=int(values["retrans"]),
            nconnect=len(re.findall(r"^\txprt:\t", entry, re.MULTILINE)),
            acregmin=int(values["acregmin"]),
            acregmax=int(values["acregmax"]),
            acdirmin=int(values["acdirmin"]),
            acdirmax=int(values["acdirmax"]),
            noac="noac" in words,
            proto=values["proto"],
            # The only option that mountstats leaves out if it has its default.
            port=int(values.get("port", NFS_PORT)),
            lease_s=int(lease.group(1)) if lease else None,
            pnfs=layout.group(1) if layout else NO_LAYOUT,
            options=tuple(words),
        )
    except (KeyError, ValueError, StopIteration) as error:
        raise RigError(f"mountstats of {directory} make no sense: {line.group(1)}") from error


class Mount:
    """The export of a server, mounted on one client."""

    def __init__(self, spec: MountSpec, machine: Machine, source: str, directory: str = DIRECTORY) -> None:
        self.spec = spec
        self.machine = machine
        self.source = source
        self.directory = directory

    def activate(self) -> MountState:
        """Mount the export and verify that the mount is as requested.

        Raises:
            NotEffective: it is not as requested.
        """
        command = mount_command(self.spec, self.source, self.directory)
        self.machine.succeed(command, deadline_s=MOUNT_DEADLINE_S)
        return self.require_effective()

    def deactivate(self) -> None:
        """Unmount, after the client has sent all dirty data."""
        self.machine.succeed(["umount", self.directory], deadline_s=MOUNT_DEADLINE_S)

    def state(self) -> MountState:
        """Read the state of the mount.

        Raises:
            RigError: nothing is mounted.
        """
        return parse_mountstats(self.machine.get("/proc/self/mountstats"), self.directory)

    def require_effective(self) -> MountState:
        """Return the state, if it is as requested.

        Raises:
            NotEffective: it is not.
        """
        state = self.state()
        require_effective(f"{self.machine.name}: mount of {self.source}", self._asked(), found_of(state))
        return state

    def _asked(self) -> dict[str, Value]:
        spec = self.spec
        return {
            "source": self.source,
            "vers": spec.vers,
            "rsize": spec.rsize,
            "wsize": spec.wsize,
            # noac alone makes the mount synchronous.
            "sync": True if spec.noac else spec.sync,
            "recovery": spec.recovery,
            "timeo": None if spec.timeo_s is None else round(spec.timeo_s * 10),
            "retrans": spec.retrans,
            "nconnect": spec.nconnect,
            "actimeo": None if spec.actimeo is None else (str(spec.actimeo),),
            "noac": spec.noac,
            "proto": spec.proto,
            "port": spec.port,
            # No export of raidproof offers layouts; with a layout the writes of clients would bypass the server.
            "pnfs": NO_LAYOUT,
        }


def found_of(state: MountState) -> dict[str, Value]:
    """Return the effective values, under the names of the request."""
    times = (state.acregmin, state.acregmax, state.acdirmin, state.acdirmax)
    return {
        **state.model_dump(include={"source", "vers", "rsize", "wsize", "sync", "recovery", "retrans", "nconnect"}),
        **state.model_dump(include={"noac", "proto", "port", "pnfs"}),
        "timeo": round(state.timeo_s * 10),
        "actimeo": tuple(sorted(set(map(str, times)))),
    }
