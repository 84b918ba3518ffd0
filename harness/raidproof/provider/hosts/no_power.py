"""A machine that exists, and whose power nobody here can cut."""

from pathlib import Path

from raidproof.core.errors import RequirementMissing
from raidproof.core.waiting import Deadline
from raidproof.disk.cache import CutPolicy
from raidproof.machine.power import Cut


class NoPower:
    """Stands where the inventory names no power control: such a machine can be measured, and not be crashed."""

    consoles: tuple[Path, ...] = ()
    poweroff = ("false",)

    def __init__(self, name: str) -> None:
        self._name = name

    def _refuse(self) -> RequirementMissing:
        return RequirementMissing(
            f"the inventory names no power control for {self._name}",
            remedy=f"add [power.{self._name}] to it: ipmi, redfish, command or sysrq",
        )

    def on(self) -> None:
        """Refuse: nobody can."""
        raise self._refuse()

    def cut(self, policy: CutPolicy, seed: int) -> Cut:
        """Refuse: nobody can."""
        del policy, seed
        raise self._refuse()

    def wait_off(self, deadline: Deadline) -> None:
        """Refuse: nobody could switch it on again."""
        del deadline
        raise self._refuse()

    def require_on(self) -> None:
        """Take it as on: nobody tells."""
