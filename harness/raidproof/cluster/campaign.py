"""The files of one crash test that workers need for the check of its crash states."""

import os
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from pathlib import Path

from raidproof.cluster.identity import software_digest
from raidproof.cluster.proof import Unsound
from raidproof.core.errors import RequestError, RigError
from raidproof.core.files import make_directory, write_durably
from raidproof.core.topology import Topology
from raidproof.image import cache
from raidproof.image.kernel import is_path
from raidproof.record import RunStore
from raidproof.run.doctor import require_host
from raidproof.run.source import Source, recorded, source_of

KIND = "campaign"
"""Folder of the cache with the files of campaigns."""
KEPT = 4
"""Number of campaigns in the cache of a worker."""
REPORT = "report.json"


@dataclass(frozen=True)
class Campaign:
    """The crash test to explore, by content: no path of the client's machine is used on a worker."""

    run: str
    """Name of the run."""
    cycle: str
    """Name of the crash test."""
    starts_dirty: bool
    lost_member: str | None
    scrub: bool
    digests: dict[str, str]
    """Digest of each file, by its path in the run's folder."""
    files: dict[str, bytes] = field(default_factory=dict, repr=False)
    """Content of the files; empty if they are in a shared folder."""
    shared: str | None = None
    """Folder that all workers can read at the same path, with the files."""
    software: str = ""
    """Digest of the kernel and the image of the checkers; see `identity.software_digest`."""

    @property
    def digest(self) -> str:
        """Digest of the campaign, which names its folder in the cache of a worker."""
        parts = [self.run, self.cycle, f"{self.starts_dirty} {self.lost_member} {self.scrub}", self.software]
        return cache.digest(*parts, *(f"{name} {digest}" for name, digest in sorted(self.digests.items())))

    def prepared(self) -> Source:
        """Return the crash test on this machine; examine the machine, and get the files, the kernel and the image.

        Raises:
            Unsound: the kernel or the image differs from that of the client.
            RequirementMissing: this machine lacks something for a lab.
            RigError: a download or a build failed, or the content of a file is not that of the client's file.
        """
        require_host()
        folder = cache.build(KIND, self.digest, self._write)
        cache.trim(KIND, KEPT)
        source = source_of(
            RunStore(folder / self.run),
            self.cycle,
            starts_dirty=self.starts_dirty,
            lost_member=self.lost_member,
            scrub=self.scrub,
        )
        if (found := software_digest(source.topology)) != self.software:
            raise Unsound(f"its kernel or image differs from the client's: digest {found}, not {self.software}")
        return source

    def _write(self, folder: Path) -> None:
        for name, digest in self.digests.items():
            content = (
                self.files[name] if self.shared is None else (Path(self.shared) / self.digest / name).read_bytes()
            )
            if digest_of(content) != digest:
                raise RigError(f"the file {name} of run {self.run} differs from that of the client")
            make_directory((folder / self.run / name).parent, exist_ok=True)
            write_durably(folder / self.run / name, content)


def digest_of(content: bytes) -> str:
    """Return the digest of a file's content."""
    return blake2b(content, digest_size=16).hexdigest()


def campaign_of(source: Source, software: str, shared: Path | None = None) -> Campaign:
    """Return the campaign for the exploration of a crash test; with ``shared``, write its files into this folder."""
    kept = source.cycle.files
    names = [REPORT, recorded(source.cycle), kept.history, kept.replies, kept.application]
    files = {name: (source.store.path / name).read_bytes() for name in names if name is not None}
    digests = {name: digest_of(content) for name, content in files.items()}
    whole = Campaign(
        source.run.run,
        source.cycle.name,
        source.starts_dirty,
        source.lost_member,
        source.scrub,
        digests,
        files,
        software=software,
    )
    if shared is None:
        return whole
    for name, content in files.items():
        path = shared / whole.digest / name
        if not path.exists():
            make_directory(path.parent, exist_ok=True)
            write_durably(path, content)
    return replace(whole, files={}, shared=os.fspath(shared.absolute()))


def require_portable(topology: Topology) -> None:
    """Verify that each worker can fetch or build the software of the machines.

    Raises:
        RequestError: a kernel, an image or a package is a file of this host.
    """
    for machine in topology.machines:
        asked = machine.software
        named = [asked.kernel, asked.modules, asked.image]
        paths = [one for one in named if one is not None and is_path(one)] + list(asked.packages)
        if paths:
            raise RequestError(
                f"{machine.name}: {paths[0]} is a file of this host, which the workers of a cluster do not have",
                remedy="use a kernel and an image that raidproof fetches or builds, or run without --cluster",
            )
