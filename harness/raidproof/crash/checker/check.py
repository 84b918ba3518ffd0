"""One look at a crash state: its stages, and what of what was seen is the same each time."""

import re
from collections.abc import Sequence
from typing import Any

from raidproof.core.waiting import now_ns
from raidproof.crash.checker.agent_connection import AgentLine, Lost, Silent
from raidproof.crash.checker.observation import End, Observation
from raidproof.machine.kernel_log import keep_tasks, moment, said_since
from raidproof.machine.machine import Machine
from raidproof.verdict.kernel_log import findings

_BROKEN = {"oops", "panic", "hung task"}
"""Signs of a kernel of which nothing more can be expected."""
_STAMP = re.compile(r"^(?:<\d+>)?\[ *\d+\.\d+\](?:\[ *[TC]\d+\])? *")
_NUMBERS = re.compile(r"(?<=\bPID: )\d+|(?<=\btask )(\S+):\d+")


class Look:
    """Begins with the switch of the disks. ``deadline_s`` holds for each request to the agent."""

    def __init__(self, machine: Machine, deadline_s: float) -> None:
        self.ms: dict[str, float] = {}
        self.at = "switch"
        self.wedged = False
        """Whether the machine is of no more use."""
        self._machine = machine
        self._deadline_s = deadline_s
        self._begun = moment(machine)
        self._since = now_ns()

    def ask(self, agent: AgentLine, verb: str, *words: str) -> dict[str, Any]:
        """Send a request, and time the stages that the answer tells of.

        Raises:
            Lost: there is no answer.
            RigError: the agent failed, and its machine goes on.
        """
        answer = agent.ask([verb, *words], self._deadline_s, self.stage)
        self.stage("")
        return answer

    def stage(self, name: str) -> None:
        """Begin a stage, which ends the one before."""
        now = now_ns()
        if self.at:
            self.ms[self.at] = self.ms.get(self.at, 0.0) + (now - self._since) / 1e6
        self.at, self._since = name, now

    def seen(self, answer: dict[str, Any]) -> Observation:
        """Return what was seen, with what the kernel has said meanwhile."""
        signs = self._signs()
        left = answer.pop("left")
        broken = any(sign in _BROKEN for sign, _ in signs)
        if left or broken:
            # Whatever it says next would be said by a machine that is not as booted.
            self.wedged = True
            said = "; ".join(filter(None, (answer["said"], left)))
            answer = {**answer, "end": End.WEDGED, "said": said, "silent": not broken}
        return Observation(**answer, console=alarming(signs), ms=self.ms)

    def lost(self, lost: Lost) -> Observation:
        """Return what was seen of a machine that no longer answers."""
        self.wedged = True
        said, signs = f"{self.at}: {lost}", self._signs()
        goes_on = isinstance(lost, Silent)
        if goes_on:
            # For whoever wants to know why.
            keep_tasks(self._machine)
        silent = goes_on and not signs
        return Observation(end=End.WEDGED, said=said, console=alarming(signs), silent=silent, ms=self.ms)

    def _signs(self) -> list[tuple[str, str]]:
        return findings(said_since(self._machine, self._begun))


def alarming(signs: Sequence[tuple[str, str]]) -> tuple[str, ...]:
    """Return each alarming line once, without what differs from boot to boot."""
    lines = (f"{sign}: {_NUMBERS.sub('*', _STAMP.sub('', line))}" for sign, line in signs)
    return tuple(dict.fromkeys(lines))
