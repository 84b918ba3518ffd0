"""`raidproof worker`: make this machine a worker of a cluster, until a signal ends it."""

import asyncio
import signal
from pathlib import Path
from socket import gethostname
from typing import Any

from raidproof.cluster.certificates import security_of
from raidproof.cluster.connection import require_dask
from raidproof.cluster.slots import slots_of
from raidproof.cluster.spec import require_tls
from raidproof.core.log import say
from raidproof.core.scratch import scratch_folder

AGAIN_S = 10.0
"""Time in seconds until a worker that was not accepted connects again."""
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def run_worker(
    address: str, *, name: str | None = None, slots: dict[str, float] | None = None, certificates: Path | None = None
) -> None:
    """Work for the scheduler at ``address`` until a signal arrives; connect again when the scheduler was lost.

    ``slots``: resources of Dask that this worker has; None: by cores and memory (`slots_of`).

    Raises:
        RequestError: the address has no TLS and is not on this host, or certificates are missing.
        RequirementMissing: Dask is not installed.
    """
    require_tls(address, "raidproof worker")
    distributed = require_dask()
    resources = slots or slots_of()
    words = ", ".join(f"{count:.0f} {what}" for what, count in resources.items())
    say(f"worker {name or gethostname()}: slots: {words}; scheduler: {address}; Ctrl-C ends the worker and its labs")
    with scratch_folder("worker") as folder:
        options = {
            "name": name or gethostname(),
            "nthreads": int(max(resources.values())),
            "resources": resources,
            "security": security_of(certificates) if address.startswith("tls://") else None,
            "local_directory": str(folder),
            "memory_limit": 0,
            # Dask always has a web server: on loopback only.
            "dashboard_address": "127.0.0.1:0",
        }
        asyncio.run(_serve(distributed.Worker, address, options))


async def _serve(kind: Any, address: str, options: dict[str, Any]) -> None:
    stop = asyncio.Event()
    for number in SIGNALS:
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    stopping = asyncio.create_task(stop.wait())
    while not stop.is_set():
        worker = kind(address, **options)
        ended = asyncio.create_task(_work(worker))
        await asyncio.wait({ended, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if stop.is_set():
            await worker.close(nanny=False, reason="a signal ended the worker")
            ended.cancel()
        elif (error := ended.exception()) is not None:
            # For example the scheduler still knows the earlier connection of this worker, whose link was cut.
            say(f"the scheduler does not accept this worker: {error}; connecting again in {AGAIN_S:.0f} s")
            await asyncio.wait({stopping}, timeout=AGAIN_S)
        else:
            # A worker that was left out must not disturb the work of the others.
            say(f"the scheduler has left this worker out, or is gone; connecting again in {AGAIN_S:.0f} s")
            await asyncio.wait({stopping}, timeout=AGAIN_S)


async def _work(worker: Any) -> None:
    async with worker:
        say(f"connected; address of the worker: {worker.address}")
        await worker.finished()
