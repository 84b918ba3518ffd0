"""A lab whose disks hold a state before its machines boot."""

from contextlib import ExitStack
from pathlib import Path

from raidproof.core.topology import Topology
from raidproof.disk.cache import CacheMode
from raidproof.disk.client import EngineClient
from raidproof.provider.registry import EnclosedLab, provider_of


class PrimedLab(EnclosedLab):
    """As any lab of its topology, on disks that are not blank.

    ``state`` is a write log with all that they hold; once they hold it, the file is gone.
    """

    def __init__(self, topology: Topology, state: Path, *, logs: Path, keep: bool = False) -> None:
        super().__init__(topology, provider_of(topology), logs=logs, keep=keep)
        self._state = state

    def _start_engine(self, undo: ExitStack) -> EngineClient:
        engine = super()._start_engine(undo)
        engine.set_mode(CacheMode.LYING)
        engine.show(self._state, keep=True)
        engine.set_mode(CacheMode.VOLATILE)
        self._state.unlink()
        return engine
