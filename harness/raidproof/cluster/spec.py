"""The specification of a cluster: the option ``--cluster``, or a TOML file."""

from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from raidproof.core.errors import RequestError, nearest
from raidproof.core.toml import read_toml

LOCAL, ADDRESS = "local", "address"
KINDS: dict[str, tuple[str, str, str]] = {
    "ssh": ("distributed", "SSHCluster", "asyncssh"),
    "slurm": ("dask_jobqueue", "SLURMCluster", "dask-jobqueue"),
    "pbs": ("dask_jobqueue", "PBSCluster", "dask-jobqueue"),
    "lsf": ("dask_jobqueue", "LSFCluster", "dask-jobqueue"),
    "sge": ("dask_jobqueue", "SGECluster", "dask-jobqueue"),
}
"""Clusters that other packages start, by kind: module, class, and the package that must be installed."""
LOOPBACK = {"127.0.0.1", "localhost", "::1"}


class ClusterSpec(BaseModel):
    """A cluster of Dask: how it is started, or where it runs."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: str
    """``local``: worker processes on this host. ``address``: a running scheduler. Otherwise a key of `KINDS`."""
    size: int = Field(default=1, ge=1)
    """Number of workers; without effect for kind ``address``."""
    address: str | None = None
    """Address of the scheduler, for kind ``address``: ``tls://scheduler:8786``."""
    certificates: Path | None = None
    """Folder with the certificates that `cluster certs` made; None: the default folder."""
    wait_s: float = Field(default=120.0, gt=0)
    """Time in seconds for which the cluster may be without any worker, for example while a batch queue is full."""
    shared: Path | None = None
    """Folder that all workers can read at the same path; write logs are then not sent through the network."""
    arguments: dict[str, Any] = Field(default_factory=dict)
    """Arguments of the class of the kind (`KINDS`), for example ``hosts`` or ``queue``."""

    @property
    def on_this_host(self) -> bool:
        """Whether all workers run on this host, and so have its files."""
        return self.kind == LOCAL

    @classmethod
    def read(cls, text: str) -> Self:
        """Return the cluster that the value of ``--cluster`` names: ``local:4``, an address, or a TOML file.

        Raises:
            RequestError: the text names no cluster, the file cannot be read, or a scheduler outside of this host has
                no TLS.
        """
        kind, _, size = text.partition(":")
        if kind == LOCAL:
            if not (size.isdecimal() and int(size)):
                raise RequestError(f"--cluster {text}: not a number of workers", remedy="write for example local:4")
            return cls(kind=LOCAL, size=int(size))
        if "://" in text:
            return cls.checked({"kind": ADDRESS, "address": text}, "--cluster")
        path = Path(text).expanduser()
        if path.suffix != ".toml":
            raise RequestError(
                f"--cluster {text}: not a cluster",
                remedy="write local:4, the address of a scheduler (tls://scheduler:8786), or the path of a .toml file",
            )
        return cls.checked(read_toml(path), str(path))

    @classmethod
    def checked(cls, fields: dict[str, Any], where: str) -> Self:
        """Return the cluster with these fields; ``where`` names their origin in messages.

        Raises:
            RequestError: a field is unknown or has a wrong value, or a scheduler outside of this host has no TLS.
        """
        try:
            spec = cls.model_validate(fields)
        except ValidationError as error:
            first = error.errors()[0]
            raise RequestError(f"{where}: {'.'.join(map(str, first['loc']))}: {first['msg']}") from error
        if spec.kind not in {LOCAL, ADDRESS, *KINDS}:
            raise RequestError(
                f"{where}: unknown kind {spec.kind!r}", remedy=nearest(spec.kind, (LOCAL, ADDRESS, *KINDS))
            )
        if spec.kind == ADDRESS:
            require_tls(spec.address or "", where)
        return spec


def require_tls(address: str, where: str) -> None:
    """Verify that a scheduler's address has TLS, or is on this host's loopback interface.

    Raises:
        RequestError: the address has neither, or is none.
    """
    parts = urlsplit(address)
    if parts.scheme not in {"tls", "tcp"} or parts.hostname is None:
        raise RequestError(
            f"{where}: not the address of a scheduler: {address!r}", remedy="write tls://scheduler:8786"
        )
    if parts.scheme == "tcp" and parts.hostname not in LOOPBACK:
        raise RequestError(
            f"{where}: {address}: a scheduler outside of this host must have TLS: workers execute what it sends",
            remedy="make certificates with `raidproof cluster certs`, and use a tls:// address",
        )
