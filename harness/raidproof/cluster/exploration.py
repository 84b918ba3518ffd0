"""An exploration on a cluster."""

from pathlib import Path

from raidproof.cluster.campaign import campaign_of, require_portable
from raidproof.cluster.checkers import ClusterCheckers
from raidproof.cluster.connection import connected
from raidproof.cluster.identity import software_digest
from raidproof.cluster.spec import ClusterSpec
from raidproof.record.exploration import ExplorationRecord
from raidproof.run.crash_states import Options
from raidproof.run.exploration import explore_cycle
from raidproof.run.source import Source


def explore_on(spec: ClusterSpec, source: Source, options: Options) -> tuple[ExplorationRecord, Path]:
    """Explore a crash test on a cluster; return the exploration's record and the path of its HTML report.

    Raises:
        RequestError: as for `explore_cycle`, or workers on other hosts lack software that is a file of this host.
        RequirementMissing: Dask is not installed.
        RigError: the cluster has no worker, or its scheduler is lost.
    """
    if not spec.on_this_host:
        require_portable(source.topology)
    campaign = campaign_of(source, software_digest(source.topology), spec.shared)
    with connected(spec) as client:
        return explore_cycle(
            source, options, lambda _: ClusterCheckers(client, campaign, source.recording, wait_s=spec.wait_s)
        )
