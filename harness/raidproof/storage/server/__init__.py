"""NFS servers: the requested and the effective export, and the commands of a server. Each kind is one file."""

from raidproof.storage.server.knfsd import Export, ExportSpec, ExportState
from raidproof.storage.server.server import (
    NFS_PORT,
    SERVERS,
    USUAL_LEASE_S,
    AnyServer,
    Outage,
    Server,
    ServerSpec,
    ServerState,
)

__all__ = [
    "NFS_PORT",
    "SERVERS",
    "USUAL_LEASE_S",
    "AnyServer",
    "Export",
    "ExportSpec",
    "ExportState",
    "Outage",
    "Server",
    "ServerSpec",
    "ServerState",
]
