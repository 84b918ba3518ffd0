"""How a plan is carried out: how often, in which order, how long, and whether the plug is pulled."""

from typing import Literal, Self

from pydantic import Field, model_validator

from raidproof.core.topology import Platform, SoftwareSpec
from raidproof.plan.table import Table
from raidproof.plan.values import Seconds


class RunSpec(Table):
    """What holds for all cells."""

    repeats: int = Field(default=3, ge=1, le=1000)
    """Visits of each cell; they are interleaved, so that what drifts hits all cells alike."""
    seed: int = 1
    """Of the order of visits, and of all else that is drawn by chance."""
    cut: Literal["power", "explore"] | None = None
    """Each cell is also judged for what it loses: the server's power is cut once while clients write. ``explore``: the
    crashes that this run could have had are looked at too."""
    explore_states: int = Field(default=200, ge=1, le=1_000_000)
    """Crash states of each configuration, where they are looked at."""
    min_seconds: Seconds | None = Field(default=None, gt=0)
    """Of the timed part; the figure of a visit that was shorter is flagged."""
    max_seconds: Seconds | None = Field(default=None, gt=0)
    """Of the timed part, a ramp included; a visit that takes longer is ended, and has failed."""
    allow_cache: bool = False
    """Rank what fits into a cache too: then the cache is what is measured."""
    assume_clean: bool = True
    """Skip the first resync: the members are zero, so they agree already."""
    only: str = ""
    """Only cells like this are wanted, as after -k: ``level=5 or members=3``."""
    provider: str = "uml"
    """How the machines come to be."""
    kernel: str | None = None
    """What the machines run, for example ``debian/sid``; see `SoftwareSpec` for this and the next three."""
    modules: str | None = None
    image: str | None = None
    packages: tuple[str, ...] = ()
    server: SoftwareSpec = SoftwareSpec()
    """Where the server differs."""
    clients: SoftwareSpec = SoftwareSpec()
    """Where the clients differ."""

    @property
    def platform(self) -> Platform:
        """How the machines come to be, and what they run."""
        both = SoftwareSpec(kernel=self.kernel, modules=self.modules, image=self.image, packages=self.packages)
        server, clients = (one.over(both) for one in (self.server, self.clients))
        return Platform(provider=self.provider, server=server, clients=clients)

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.min_seconds and self.max_seconds and self.min_seconds > self.max_seconds:
            raise ValueError(f"min_seconds {self.min_seconds:g} is more than max_seconds {self.max_seconds:g}")
        return self
