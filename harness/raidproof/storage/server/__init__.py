"""NFS servers: request, effective state, and the server of a machine. Each kind is a file of this folder."""

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
