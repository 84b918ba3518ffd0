"""The NFS mount of a client: requested options, mount command, and effective state from /proc/self/mountstats."""

import re
from collections.abc import Mapping
from errno import EBUSY, EIO, ETIMEDOUT
from math import inf
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from raidproof.core.errors import RequestError, RigError
from raidproof.core.layer import PAGE_SIZE, Machine, Spec, State, Value, one_of, power_of_two, require_effective
from raidproof.core.units import KIB, MIB, Size, format_size, parse_duration
from raidproof.storage.kerberos import SYS
from raidproof.storage.server import NFS_PORT
from raidproof.storage.tls import NONE

DIRECTORY = "/mnt/raidproof"
"""Mount point of the export on a client."""
MOUNT_DEADLINE_S = 120.0
VERSIONS = ("3", "4.0", "4.1", "4.2")
SESSIONS = ("4.1", "4.2")
"""NFS versions with sessions (RFC 8881)."""
NO_PROTOCOL: Mapping[str, str] = {
    "udp": "distributions build the NFS client without UDP (CONFIG_NFS_DISABLE_UDP_SUPPORT); NFSv4 never had UDP",
    "udp6": "distributions build the NFS client without UDP (CONFIG_NFS_DISABLE_UDP_SUPPORT); NFSv4 never had UDP",
    "tcp6": "the lab's network is IPv4",
    "rdma": "the lab's machines have no RDMA device",
    "rdma6": "the lab's machines have no RDMA device",
}
"""Values of the mount option proto (nfs(5)) that are refused, with the reason."""
ATTRIBUTE_TIMES = {"acregmin": 3, "acregmax": 60, "acdirmin": 30, "acdirmax": 60}
"""The options for the cache of attributes, with the kernel's defaults in seconds (nfs(5))."""
_LOOKUPS = {"pos": "positive"}
# Options with a field, by the field that sets them.
_FIELDS = {
    **{name: name for name in ("vers", "rsize", "wsize", "proto", "port", "nconnect", "retrans", "actimeo", "noac")},
    **{name: name for name in (*ATTRIBUTE_TIMES, "lookupcache", "local_lock", "softreval", "write", "max_connect")},
    **dict.fromkeys(("nfsvers", "minorversion", "v3", "v4", "v4.0", "v4.1", "v4.2"), "vers"),
    **dict.fromkeys(("hard", "soft", "softerr"), "recovery"),
    **dict.fromkeys(("sync", "async"), "sync"),
    **dict.fromkeys(("ac", "noac"), "noac"),
    **dict.fromkeys(("cto", "nocto"), "cto"),
    **dict.fromkeys(("lock", "nolock"), "lock"),
    **dict.fromkeys(("sharecache", "nosharecache"), "sharecache"),
    **dict.fromkeys(("tcp", "udp", "rdma"), "proto"),
    "timeo": "timeo_s",
    **{name: name for name in ("sec", "xprtsec")},
}
REFUSED: Mapping[str, str] = {
    "fsc": "no client of a lab has cachefilesd, so that there is no cache on its disk",
    "trunkdiscovery": "the kernel lists it nowhere, so that its effect cannot be read back",
    "notrunkdiscovery": "the kernel lists it nowhere, so that its effect cannot be read back",
    "ro": "a read-only mount has no acknowledged writes to test",
    "retry": "the harness itself waits until the server is ready",
    "bg": "the harness itself waits until the server is ready",
    "intr": "the kernel ignores it since Linux 2.6.25 (nfs(5))",
    "nointr": "the kernel ignores it since Linux 2.6.25 (nfs(5))",
}
"""Mount options that cannot be requested, with the reason."""


def why_refused(option: str) -> str | None:
    """Return why a mount option cannot be requested; None if it can."""
    return REFUSED.get(option.partition("=")[0])


def _read_version(value: Any) -> Any:
    version = str(value).lower().removeprefix("nfs").removeprefix("v")
    if version == "4":
        raise RequestError(f"NFS version {value}: the minor version is missing: request 4.0, 4.1 or 4.2")
    return one_of("NFS version", version, VERSIONS)


def _read_protocol(value: Any) -> Any:
    if (reason := NO_PROTOCOL.get(str(value).lower())) is not None:
        raise RequestError(f"proto {value}: {reason}; use tcp")
    return value


def _read_seconds(value: Any) -> Any:
    return parse_duration(value) / 1e9 if isinstance(value, str) else value


def _read_lookups(value: Any) -> Any:
    return _LOOKUPS.get(str(value), value)


def _read_others(value: Any) -> Any:
    if isinstance(value, str):
        value = tuple(option for option in value.split(",") if option)
    if isinstance(value, tuple | list):
        for option in map(str, value):
            if (field := _FIELDS.get(option.partition("=")[0])) is not None:
                raise RequestError(f"mount option {option} has a setting of its own: {field}")
            if (reason := why_refused(option)) is not None:
                raise RequestError(f"mount option {option}: {reason}")
    return value


class MountEffects(Spec):
    """What the options of a mount permit, which verdicts take into account. The defaults permit nothing.

    Verdicts read these fields, and no option.
    """

    errors: frozenset[int] = frozenset()
    """The error numbers (errno) of operations that the server did not answer in time: it may have executed them."""
    local_locks: bool = False
    """Whether a lock excludes only processes of the same client."""
    old_data_s: float = 0.0
    """Greatest time in seconds for which a client that opens a file may read data from before another client's close.

    0: close-to-open consistency (nfs(5), DATA AND METADATA COHERENCE)."""
    old_attributes_s: float = ATTRIBUTE_TIMES["acregmax"]
    """Greatest time in seconds for which a client may see attributes and names from before another client's change, or
    data in a file that it keeps open; infinite if it may see them while the server does not answer."""


class MountSpec(Spec):
    """The requested options of a mount, named as in nfs(5). A field that is None leaves the choice to the client."""

    vers: Annotated[Literal["3", "4.0", "4.1", "4.2"], BeforeValidator(_read_version)] = "4.2"
    """NFS version."""
    rsize: Size | None = None
    """Maximum bytes of one READ request."""
    wsize: Size | None = None
    """Maximum bytes of one WRITE request."""
    sync: bool | None = None
    """Whether write() returns only after the client has sent the data.

    Without ``sync``, the client may keep data until fsync() or close(), which breaks no promise.
    """
    recovery: Literal["hard", "soft", "softerr"] = "hard"
    """What the client does if the server does not answer: retry for ever, or fail after ``retrans`` retries."""
    timeo_s: Annotated[float | None, BeforeValidator(_read_seconds)] = Field(default=None, gt=0, le=600)
    """Seconds until the client repeats a request; also as text: ``"1.4s"``."""
    retrans: int | None = Field(default=None, ge=0, le=1000)
    """Retries before the client takes further recovery action."""
    nconnect: int | None = None
    """Number of TCP connections to the server."""
    actimeo: int | None = Field(default=None, ge=0)
    """Seconds for which the client caches attributes of files and directories."""
    acregmin: int | None = Field(default=None, ge=0)
    """Least seconds for which the client caches attributes of a file."""
    acregmax: int | None = Field(default=None, ge=0)
    """Greatest seconds for which the client caches attributes of a file."""
    acdirmin: int | None = Field(default=None, ge=0)
    """Least seconds for which the client caches attributes of a directory."""
    acdirmax: int | None = Field(default=None, ge=0)
    """Greatest seconds for which the client caches attributes of a directory."""
    noac: bool = False
    """Whether the client caches no attributes, and makes every write synchronous."""
    cto: bool = True
    """Whether an open of a file revalidates the client's cache (close-to-open consistency); False: ``nocto``."""
    lookupcache: Annotated[Literal["all", "positive", "none"] | None, BeforeValidator(_read_lookups)] = None
    """Which results of lookups the client caches: all, only those of names that exist, or none."""
    lock: bool = True
    """Whether the server manages locks; False: ``nolock``, with which locks exclude only processes of one client."""
    local_lock: Literal["none", "flock", "posix", "all"] | None = None
    """Which kinds of lock exclude only processes of one client; NFSv3 only."""
    sharecache: bool = True
    """Whether several mounts of an export on a client share their caches."""
    softreval: bool = False
    """Whether the client uses its cache of attributes and names while the server does not answer."""
    write: Literal["lazy", "eager", "wait"] | None = None
    """When the client sends the data of write(): later, at once, or before write() returns."""
    max_connect: int | None = Field(default=None, ge=1, le=16)
    """Greatest number of connections to different addresses of one server; NFSv4.1 and 4.2 only."""
    proto: Annotated[Literal["tcp"], BeforeValidator(_read_protocol)] = "tcp"
    """Transport protocol (nfs(5))."""
    port: int | None = Field(default=None, ge=1, le=65535)
    """Port of the server; None: the usual one (nfs(5))."""
    sec: Literal["sys", "krb5", "krb5i", "krb5p"] = "sys"
    """Security of requests: numbers of users (AUTH_SYS); Kerberos; also with integrity; also encrypted (nfs(5))."""
    xprtsec: Literal["none", "tls", "mtls"] = "none"
    """Security of the transport: plain text; TLS; TLS with a certificate of the client (nfs(5))."""
    other_options: Annotated[tuple[str, ...], BeforeValidator(_read_others)] = ()
    """Options of mount(8) and nfs(5) that have no field of their own, as a list or as text: ``"noatime,nosuid"``."""

    @model_validator(mode="after")
    def _possible(self) -> Self:
        for name, size in (("rsize", self.rsize), ("wsize", self.wsize)):
            if size is not None:
                _refuse_transfer_size(name, size)
        if self.nconnect is not None and not 1 <= self.nconnect <= 16:
            raise RequestError(f"nconnect {self.nconnect} is not from 1 to 16, the connections that a client can open")
        self._refuse_times()
        self._refuse_locks()
        if self.max_connect is not None and self.vers not in SESSIONS:
            raise RequestError(f"max_connect: NFS version {self.vers} has no trunking; request 4.1 or 4.2")
        if self.xprtsec != NONE and self.vers not in SESSIONS:
            raise RequestError(
                f"xprtsec: with NFS version {self.vers} locks or callbacks would use connections without TLS; "
                "request 4.1 or 4.2"
            )
        if self.noac and self.sync is False:
            raise RequestError("noac makes every write synchronous, which contradicts sync = false: request only one")
        if self.timeo_s is not None and abs(self.timeo_s * 10 - round(self.timeo_s * 10)) > 1e-9:
            raise RequestError(f"timeo_s {self.timeo_s} is no multiple of 0.1: the client counts tenths of a second")
        return self

    def _refuse_times(self) -> None:
        times = {name: value for name in ATTRIBUTE_TIMES if (value := getattr(self, name)) is not None}
        if self.noac and (self.actimeo or any(times.values())):
            names = ", ".join(
                f"{name} = {value}" for name, value in {"actimeo": self.actimeo, **times}.items() if value
            )
            raise RequestError(f"noac disables the cache of attributes, which contradicts {names}: request only one")
        if self.actimeo is not None and times:
            raise RequestError(f"actimeo sets {', '.join(ATTRIBUTE_TIMES)}: request either actimeo, or single times")
        for least, most in (("acregmin", "acregmax"), ("acdirmin", "acdirmax")):
            if self._seconds(least) > self._seconds(most):
                raise RequestError(
                    f"{least} = {self._seconds(least)} s is more than {most} = {self._seconds(most)} s; request both"
                )

    def _refuse_locks(self) -> None:
        if self.vers != "3" and (not self.lock or self.local_lock is not None):
            name = "nolock" if not self.lock else "local_lock"
            raise RequestError(f"{name}: NFSv4 clients ignore it, as locks are a part of NFSv4; request vers = 3")
        if not self.lock and self.local_lock not in {None, "all"}:
            raise RequestError(f"nolock makes all locks local, which contradicts local_lock = {self.local_lock}")

    def _seconds(self, name: str) -> int:
        """Return a requested time of the cache of attributes, or the kernel's default, in seconds."""
        if self.noac:
            return 0
        requested = self.actimeo if self.actimeo is not None else getattr(self, name)
        return int(ATTRIBUTE_TIMES[name] if requested is None else requested)

    @property
    def secured(self) -> bool:
        """Whether the export must refuse clients with less security.

        Then a capture cannot read the traffic, or not which user sent a request.
        """
        return self.xprtsec != NONE or self.sec != SYS

    @property
    def local_locks(self) -> bool:
        """Whether locks of fcntl(2) exclude only processes of the same client."""
        return not self.lock or self.local_lock in {"posix", "all"}

    @property
    def has_locks_of_nlm(self) -> bool:
        """Whether the server manages locks by NLM, the protocol of NFSv3 for locks, which needs rpc.statd."""
        return self.vers == "3" and self.lock

    @property
    def effects(self) -> MountEffects:
        """What the options permit beside the promises of a mount with default options."""
        attributes_s = max(self._seconds("acregmax"), self._seconds("acdirmax"))
        return MountEffects(
            # A soft mount gives up: EIO, with softerr ETIMEDOUT (nfs(5)). The server may have executed the request.
            # EBUSY: the removal of an open file, whose other name the client could not look up (nfs_sillyrename).
            errors=frozenset() if self.recovery == "hard" else frozenset({EIO, ETIMEDOUT, EBUSY}),
            local_locks=self.local_locks,
            # Without close-to-open, an open uses the cached attributes until they expire.
            old_data_s=0.0 if self.cto else self._seconds("acregmax"),
            old_attributes_s=inf if self.softreval else attributes_s,
        )

    def options(self) -> tuple[str, ...]:
        """Return the requested mount options, as in nfs(5)."""
        requested = {
            "vers": self.vers,
            "rsize": self.rsize,
            "wsize": self.wsize,
            "proto": self.proto,
            "port": self.port,
            "nconnect": self.nconnect,
            "timeo": None if self.timeo_s is None else round(self.timeo_s * 10),
            "retrans": self.retrans,
            "actimeo": self.actimeo,
            **{name: getattr(self, name) for name in ATTRIBUTE_TIMES},
            "lookupcache": self.lookupcache,
            "local_lock": self.local_lock,
            "write": self.write,
            "max_connect": self.max_connect,
            "sec": self.sec if self.sec != SYS else None,
            "xprtsec": self.xprtsec if self.xprtsec != NONE else None,
            # No retries by mount.nfs: the harness waits until the server is ready, within its own deadline.
            "retry": 0,
        }
        return (
            *(f"{name}={value}" for name, value in requested.items() if value is not None),
            self.recovery,
            *([] if self.sync is None else ["sync" if self.sync else "async"]),
            *(["noac"] if self.noac else []),
            *(["nocto"] if not self.cto else []),
            *(["nolock"] if not self.lock else []),
            *(["nosharecache"] if not self.sharecache else []),
            *(["softreval"] if self.softreval else []),
            *self.other_options,
        )


def _refuse_transfer_size(name: str, size: int) -> None:
    written = f"{name} {format_size(size)}"
    if size > MIB:
        raise RequestError(f"{written} is more than the maximum: client and server clamp it to 1MiB")
    if size < KIB:
        raise RequestError(f"{written} is less than 1KiB: the client would use its default instead")
    # The client rounds down: to whole pages, and below a page to a power of two (nfs_io_size, Linux 6.0).
    if size % PAGE_SIZE and not (size < PAGE_SIZE and power_of_two(size)):
        raise RequestError(
            f"{written} is not a multiple of the page size, nor 1KiB or 2KiB: the client would round it down to whole "
            "pages of 4KiB, or below to a power of two"
        )


NO_LAYOUT = "not configured"
"""Value of ``pnfs`` in mountstats if an NFSv4.1 or 4.2 mount does not use pNFS (nfs4_show_pnfs in fs/nfs/super.c)."""


class MountState(State):
    """The effective state of a mount, from /proc/self/mountstats, which lists default values too.

    Fields of the same names as in `MountSpec` have the same units.
    """

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
    """Number of open TCP connections to the server."""
    acregmin: int
    """Least seconds for which attributes of a file are cached; the next three fields likewise, see nfs(5)."""
    acregmax: int
    acdirmin: int
    acdirmax: int
    noac: bool
    proto: str
    port: int
    lease_s: int | None
    """Lease time of the server in seconds; None for NFSv3, which has no leases."""
    pnfs: str
    """The pNFS layout driver of the client, which would write directly to data servers, or `NO_LAYOUT`."""
    options: tuple[str, ...]
    """All words of the line ``opts`` in mountstats."""


def mount_command(spec: MountSpec, source: str, directory: str = DIRECTORY) -> list[str]:
    """Return the command that creates the mount point if needed, and mounts ``source`` (ADDRESS:PATH) on it."""
    return ["mount", "--mkdir", "--types", "nfs", "--options", ",".join(spec.options()), source, directory]


def fstab_line(spec: MountSpec, source: str, directory: str) -> str:
    """Return the line of a client's /etc/fstab that mounts ``source`` with the requested options.

    The option ``retry`` is left out: only the harness waits by itself until the server is ready.
    """
    options = [option for option in spec.options() if not option.startswith("retry=")]
    return f"{source} {directory} nfs {','.join([*options, '_netdev'])} 0 0"


def parse_mountstats(text: str, directory: str = DIRECTORY) -> MountState:
    """Parse the entry of one mount point in the content of /proc/self/mountstats.

    Raises:
        RigError: no NFS file system is mounted on the directory, or the entry is truncated or malformed.
    """
    start = re.compile(rf"^device (\S+) mounted on {re.escape(directory)} with fstype nfs4? statvers=", re.MULTILINE)
    # If several file systems are mounted on the directory, processes see the last one.
    entries = list(start.finditer(text))
    if not entries:
        raise RigError(f"/proc/self/mountstats lists no NFS mount on {directory}")
    entry = text[entries[-1].start() :].split("\ndevice ", maxsplit=1)[0]
    line = re.search(r"^\topts:\t(\S+)\n", entry, re.MULTILINE)
    # The statistics per operation end an entry: without them it is truncated.
    if line is None or "per-op statistics" not in entry:
        raise RigError(f"the entry of {directory} in /proc/self/mountstats is truncated: {entry[-300:]}")
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
            # mountstats leaves out this option alone if it has its default.
            port=int(values.get("port", NFS_PORT)),
            lease_s=int(lease.group(1)) if lease else None,
            pnfs=layout.group(1) if layout else NO_LAYOUT,
            options=tuple(words),
        )
    except (KeyError, ValueError, StopIteration) as error:
        raise RigError(
            f"an option in the entry of {directory} in /proc/self/mountstats is missing or malformed ({error!r}): "
            f"{line.group(1)}"
        ) from error


def parse_mounts(text: str, directory: str = DIRECTORY) -> tuple[str, ...]:
    """Return the options of the last file system that is mounted on a directory, from /proc/self/mounts.

    Raises:
        RigError: nothing is mounted on the directory.
    """
    found = [words[3] for line in text.splitlines() if len(words := line.split()) == 6 and words[1] == directory]
    if not found:
        raise RigError(f"/proc/self/mounts lists nothing on {directory}")
    return tuple(found[-1].split(","))


class Mount:
    """The export of a server, mounted on one client."""

    def __init__(self, spec: MountSpec, machine: Machine, source: str, directory: str = DIRECTORY) -> None:
        self.spec = spec
        self.machine = machine
        self.source = source
        self.directory = directory

    def activate(self) -> MountState:
        """Mount the export, and verify that the effective mount options are as requested.

        Raises:
            NotEffective: an effective mount option differs from the requested one.
        """
        command = mount_command(self.spec, self.source, self.directory)
        self.machine.succeed(command, deadline_s=MOUNT_DEADLINE_S)
        return self.require_effective()

    def deactivate(self) -> None:
        """Unmount the export; umount(8) returns after the client has sent all dirty data."""
        self.machine.succeed(["umount", self.directory], deadline_s=MOUNT_DEADLINE_S)

    def state(self) -> MountState:
        """Read the effective state of the mount.

        Raises:
            RigError: no NFS file system is mounted on the directory.
        """
        state = parse_mountstats(self.machine.get("/proc/self/mountstats"), self.directory)
        if not self.spec.other_options:
            return state
        # mountstats lacks the options of the mount point, such as nosuid.
        further = parse_mounts(self.machine.get("/proc/self/mounts"), self.directory)
        return state.model_copy(update={"options": (*state.options, *further)})

    def require_effective(self) -> MountState:
        """Verify that the effective mount options are as requested, and return the state of the mount.

        Raises:
            NotEffective: an effective mount option differs from the requested one.
        """
        state = self.state()
        found = found_of(state) | {
            "other_options": tuple(one for one in self.spec.other_options if one in state.options)
        }
        require_effective(f"{self.machine.name}: mount of {self.source}", self._requested(), found)
        return state

    def _requested(self) -> dict[str, Value]:
        spec = self.spec
        return {
            "source": self.source,
            "vers": spec.vers,
            "rsize": spec.rsize,
            "wsize": spec.wsize,
            # noac implies sync (nfs(5)).
            "sync": True if spec.noac else spec.sync,
            "recovery": spec.recovery,
            "timeo": None if spec.timeo_s is None else round(spec.timeo_s * 10),
            "retrans": spec.retrans,
            "nconnect": spec.nconnect,
            "actimeo": None if spec.actimeo is None else (str(spec.actimeo),),
            **{name: getattr(spec, name) for name in ATTRIBUTE_TIMES},
            "noac": spec.noac,
            "cto": spec.cto,
            "lookupcache": spec.lookupcache,
            "lock": spec.lock,
            "local_lock": "all" if not spec.lock else spec.local_lock,
            "sharecache": spec.sharecache,
            "softreval": spec.softreval,
            "write": spec.write,
            "max_connect": spec.max_connect,
            "sec": spec.sec,
            "xprtsec": spec.xprtsec,
            "other_options": spec.other_options,
            "proto": spec.proto,
            "port": spec.port,
            # raidproof exports without pnfs (exports(5)): with a layout, a client's writes would bypass the server.
            "pnfs": NO_LAYOUT,
        }


def found_of(state: MountState) -> dict[str, Value]:
    """Return the effective values of a mount under the names that `Mount` requests, for `require_effective`."""
    times = (state.acregmin, state.acregmax, state.acdirmin, state.acdirmax)
    values = dict(word.split("=", 1) for word in state.options if "=" in word)
    # The kernel does not list the default of these options (nfs_show_mount_options in fs/nfs/super.c).
    lookups, connections = values.get("lookupcache", "all"), values.get("max_connect")
    return {
        "cto": "nocto" not in state.options,
        "lookupcache": _LOOKUPS.get(lookups, lookups),
        "lock": "nolock" not in state.options,
        "local_lock": values.get("local_lock", "none"),
        "sharecache": "nosharecache" not in state.options,
        "softreval": "softreval" in state.options,
        "write": values.get("write", "lazy"),
        "max_connect": int(connections) if connections else None,
        "sec": values.get("sec", SYS),
        "xprtsec": values.get("xprtsec", NONE),
        **state.model_dump(include=set(ATTRIBUTE_TIMES)),
        **state.model_dump(include={"source", "vers", "rsize", "wsize", "sync", "recovery", "retrans", "nconnect"}),
        **state.model_dump(include={"noac", "proto", "port", "pnfs"}),
        "timeo": round(state.timeo_s * 10),
        "actimeo": tuple(sorted(set(map(str, times)))),
    }
