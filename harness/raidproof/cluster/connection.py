"""The connection to a cluster of Dask, which is started if the specification says so."""

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from raidproof.cluster.certificates import security_of
from raidproof.cluster.slots import slots_of
from raidproof.cluster.spec import ADDRESS, KINDS, LOCAL, ClusterSpec, require_tls
from raidproof.core.errors import RequestError, RequirementMissing, RigError
from raidproof.core.log import say, step

LOST_AFTER_S = 11
"""Time in seconds after which Dask gives up a connection that answers nothing: the least that it accepts."""
CONNECT_S = 30
"""Time limit in seconds for connecting to a scheduler."""
SETTINGS = {
    "distributed.comm.timeouts.tcp": f"{LOST_AFTER_S}s",
    "distributed.comm.timeouts.connect": f"{CONNECT_S}s",
    "distributed.admin.tick.limit": "30s",
    "distributed.worker.memory.spill": False,
    # The profiler calls sys._current_frames() 100 times a second. CPython 3.11 deadlocks if the garbage collector runs
    # meanwhile and closes a recording, for this lets another thread run: that one may start a thread.
    "distributed.worker.profile.enabled": False,
}
"""Settings of Dask for scheduler, workers and clients."""


def require_dask() -> Any:
    """Return the package ``distributed``, with raidproof's settings.

    Raises:
        RequirementMissing: it is not installed.
    """
    try:
        import dask  # noqa: PLC0415  an extra
        import distributed  # noqa: PLC0415
    except ImportError as error:
        raise RequirementMissing(
            f"a cluster needs the Python packages dask and distributed ({error})",
            remedy="pip install 'raidproof[cluster]'",
        ) from error
    dask.config.set(SETTINGS)
    return distributed


@contextmanager
def connected(spec: ClusterSpec) -> Iterator[Any]:
    """Start the cluster, if it is not a running one; return a connected `distributed.Client`.

    Leaving the context ends what was started.

    Raises:
        RequestError: certificates are missing, or the arguments do not fit the kind.
        RequirementMissing: a package is not installed.
        RigError: the scheduler does not answer.
    """
    distributed = require_dask()
    if spec.kind == ADDRESS:
        assert spec.address is not None  # noqa: S101  `ClusterSpec.checked` requires it
        step(f"connecting to the scheduler {spec.address}")
        security = security_of(spec.certificates) if spec.address.startswith("tls://") else None
        try:
            client = distributed.Client(spec.address, security=security, timeout=CONNECT_S, set_as_default=False)
        except OSError as error:
            raise RigError(f"the scheduler {spec.address} does not answer: {error}") from error
        with client:
            yield announced(client)
        return
    step(f"starting a cluster: {spec.kind}, {spec.size} workers")
    with started(spec, distributed) as cluster, distributed.Client(cluster, set_as_default=False) as client:
        require_tls(cluster.scheduler_address, f"cluster {spec.kind}")
        yield announced(client)


def announced(client: Any) -> Any:
    """Print the address of Dask's dashboard, which needs the package bokeh; return the client."""
    if client.dashboard_link and find_spec("bokeh") is not None:
        say(f"dashboard of the cluster: {client.dashboard_link}")
    return client


def started(spec: ClusterSpec, distributed: Any) -> Any:
    """Return a new cluster of Dask, as a context manager.

    Raises:
        RequestError: certificates are missing, or the arguments do not fit the kind.
        RequirementMissing: the kind's package is not installed.
    """
    if spec.kind == LOCAL:
        each = slots_of(share=spec.size)
        return distributed.LocalCluster(
            n_workers=spec.size,
            threads_per_worker=max(each.values()),
            resources=each,
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",
            memory_limit=0,
            **spec.arguments,
        )
    module, name, package = KINDS[spec.kind]
    try:
        kind = getattr(import_module(module), name)
    except ImportError as error:
        raise RequirementMissing(
            f"clusters of kind {spec.kind} need a package: {error}", remedy=f"pip install {package}"
        ) from error
    arguments = dict(spec.arguments)
    if "security" in inspect.signature(kind).parameters:
        arguments.setdefault("security", security_of(spec.certificates))
    else:
        # Each machine has its own paths of the certificates, in Dask's environment variables: see docs/cluster.md.
        arguments["scheduler_options"] = {**arguments.get("scheduler_options", {}), "protocol": "tls"}
    try:
        cluster = kind(**arguments)
    except TypeError as error:
        raise RequestError(f"the arguments of the cluster do not fit {module}.{name}: {error}") from error
    if hasattr(cluster, "scale") and spec.kind != "ssh":
        cluster.scale(spec.size)
    return cluster
