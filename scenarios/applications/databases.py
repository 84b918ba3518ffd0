"""The databases as applications, and the machines that have them."""

from pathlib import Path

from raidproof.core.errors import RequirementMissing
from raidproof.core.topology import Topology
from raidproof.crash.checker import SHOW
from raidproof.workload.application import ApplicationSpec

HERE = Path(__file__).parent
IMAGE = HERE / "image"
"""The recipe of an image with the databases."""


def sqlite(mode: str, synchronous: str, *, on: str = "clients", pause_ms: int = 2) -> ApplicationSpec:
    """Return an application that commits transactions of an SQLite database."""
    python, program = "python3", "sqlite_entries.py"
    return ApplicationSpec.model_validate(
        {
            "files": (str(HERE / program),),
            "prepare": (python, program, "prepare", mode, synchronous),
            "run": (python, program, "run", mode, synchronous, str(pause_ms)),
            "check": (python, program, "check"),
            "on": on,
        }
    )


def lmdb(on: str) -> ApplicationSpec:
    """Return an application that commits transactions of an LMDB environment."""
    python, program = "python3", "lmdb_entries.py"
    return ApplicationSpec.model_validate(
        {
            "files": (str(HERE / program),),
            "run": (python, program, "run"),
            "check": (python, program, "check"),
            "on": on,
        }
    )


def with_databases(topology: Topology) -> Topology:
    """Return a topology with one client, whose machines have SQLite and LMDB.

    Raises:
        RequirementMissing: the run's provider does not boot images.
    """
    if topology.provider not in SHOW:
        raise RequirementMissing(f"the machines of provider {topology.provider} have no image with the databases")
    machines = (topology.server, topology.clients[0])
    software = [one.software.model_copy(update={"image": str(IMAGE), "packages": ()}) for one in machines]
    changed = [one.model_copy(update={"software": of}) for one, of in zip(machines, software, strict=True)]
    return topology.model_copy(update={"machines": tuple(changed)})
