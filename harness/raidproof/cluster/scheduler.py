"""`raidproof cluster scheduler`: run Dask's scheduler, with TLS unless it listens on loopback only."""

import asyncio
from pathlib import Path
from typing import Any

from raidproof.cluster.certificates import security_of
from raidproof.cluster.connection import require_dask
from raidproof.cluster.spec import LOOPBACK
from raidproof.cluster.worker import SIGNALS
from raidproof.core.log import say

PORT = 8786
"""Default port of Dask's schedulers."""


def run_scheduler(host: str, port: int = PORT, *, certificates: Path | None = None) -> None:
    """Run a scheduler until a signal arrives; ``host``: the address on which it listens.

    Raises:
        RequestError: certificates are missing, and the address is not on loopback.
        RequirementMissing: Dask is not installed.
    """
    distributed = require_dask()
    security = None if host in LOOPBACK else security_of(certificates)
    asyncio.run(_serve(distributed.Scheduler, host, port, security))


async def _serve(kind: Any, host: str, port: int, security: Any) -> None:
    stop = asyncio.Event()
    for number in SIGNALS:
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    protocol = "tcp" if security is None else "tls"
    # Dask always has a web server, for its dashboard: on loopback only.
    web = {"dashboard": True, "dashboard_address": "127.0.0.1:0"}
    async with kind(host=host, port=port, protocol=protocol, security=security, **web) as scheduler:
        say(f"scheduler: {scheduler.address}; for each machine: raidproof worker {scheduler.address}")
        await stop.wait()
