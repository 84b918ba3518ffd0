"""What must be equal on all machines of a cluster: raidproof's source code, and the software of the labs' machines."""

import os
import platform
from functools import cache
from pathlib import Path
from socket import gethostname

import raidproof
from raidproof.core.topology import Topology
from raidproof.image.cache import digest
from raidproof.provider.provider import GuestProvider
from raidproof.provider.registry import provider_of
from raidproof.record.worker import WorkerRecord


@cache
def version() -> str:
    """Return the version of raidproof with a digest of its source code, which includes local changes."""
    folder = Path(raidproof.__file__).parent
    files = sorted(path for path in folder.rglob("*.py") if path.is_file())
    parts = (part for path in files for part in (str(path.relative_to(folder)), path.read_bytes()))
    return f"{raidproof.__version__}-{digest(*parts)}"


def software_digest(topology: Topology) -> str:
    """Return a digest of the kernels and images of a lab's machines; fetch and build them if the cache lacks them.

    Kernels and images are compared by the versions of their packages: two builds of one image differ in time stamps,
    and a User-mode kernel contains the path of the cache.

    Raises:
        RequestError, RequirementMissing, RigError: as for `Provider.prepare`.
    """
    provider = provider_of(topology)
    provider.prepare(topology)
    if not isinstance(provider, GuestProvider):
        return ""
    parts: list[str | bytes] = []
    for name, kernel in sorted(provider.kernels.items()):
        packages = sorted(provider.images[name].packages.items())
        packages += sorted(kernel.packages.items())
        parts += [name, kernel.name, kernel.release, *(f"{one} {which}" for one, which in packages)]
    return digest(*parts)


def this_machine(name: str) -> WorkerRecord:
    """Return the record of a worker on this machine, which has done nothing yet."""
    return WorkerRecord(
        name=name,
        host=gethostname(),
        cpu=cpu_model(Path("/proc/cpuinfo").read_text()),
        cores=len(os.sched_getaffinity(0)),
        kernel=platform.release(),
        load=os.getloadavg()[0],
        version=version(),
    )


def cpu_model(cpuinfo: str) -> str:
    """Return the name of the CPU from the content of /proc/cpuinfo; the machine's architecture if it has none."""
    for line in cpuinfo.splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "model name":
            return value.strip()
    return platform.machine()
