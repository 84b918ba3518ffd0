"""A kernel that is ready to boot."""

from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Kernel:
    """A kernel, with all that it needs to bring a machine up."""

    name: str
    release: str
    """As ``uname -r`` says it."""
    binary: Path
    """A program of this host (User-mode Linux), or a bzImage."""
    modules_image: Path
    """A read-only ext4 image to mount on /lib/modules."""
    environment: dict[str, str] = field(default_factory=dict)
    """What the process needs in its environment, on top of the harness's own."""
    arguments: tuple[str, ...] = ()
    """What belongs on its command line wherever it runs."""
    packages: dict[str, str] = field(default_factory=dict)
    """The versions of the packages that it comes from."""
    initramfs: Path | None = None
    """What finds and mounts the root; a User-mode kernel has that built in."""

    @property
    def preload(self) -> Path | None:
        """The XSTATE work-around, where the probe found that it is needed."""
        path = self.environment.get("LD_PRELOAD")
        return Path(path) if path else None
