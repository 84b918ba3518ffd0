"""A crash state as a run would see it: on the engine's disks, by a machine that boots with it, through nfsd too."""

from contextlib import ExitStack
from typing import Any

from raidproof.core.command import CommandFailed
from raidproof.crash.checker.agent_connection import AgentLine, Lost
from raidproof.crash.checker.check import Look
from raidproof.crash.checker.nfsd import below, mount_of, start_nfsd
from raidproof.crash.checker.observation import End, Observation, ThroughNfsd
from raidproof.guest.check_agent import differing
from raidproof.provider.registry import EnclosedLab
from raidproof.storage.server import Export
from raidproof.storage.stack import StackSpec


def look_cold(lab: EnclosedLab, stack: StackSpec, orders: dict[str, Any], deadline_s: float) -> Observation:
    """Look at what a lab has booted with.

    Raises:
        RigError: the rig failed, not what it looks at.
    """
    with lab.listen() as listener, AgentLine.start(lab.server, listener, lab, orders) as agent:
        look = Look(lab.server, deadline_s)
        try:
            answer = look.ask(agent, "up")
            if answer["end"] == End.READ:
                answer.update(_through_nfsd(lab, stack, orders, look, agent, answer["found"]))
            answer.update(look.ask(agent, "down"))
        except Lost as lost:
            return look.lost(lost)
        return look.seen(answer)


def _through_nfsd(
    lab: EnclosedLab, stack: StackSpec, orders: dict[str, Any], look: Look, agent: AgentLine, direct: Any
) -> dict[str, Any]:
    """Export, mount on the server itself, and read once more; what of that does not work gives nothing."""
    export, mount = Export(stack.export, lab.server), mount_of(stack, lab.server)
    look.stage("nfsd")
    try:
        with ExitStack() as undo:
            undo.callback(export.deactivate)
            start_nfsd(export)
            mount.activate()
            undo.callback(mount.deactivate)
            seen = look.ask(agent, "look", below(mount, orders["ledger"]["root"]))["found"]
    except (CommandFailed, ExceptionGroup) as error:
        return {"through_nfsd": ThroughNfsd.DIFFERENT, "said": f"through nfsd: {error}"}
    if differ := differing(direct, seen):
        return {"through_nfsd": ThroughNfsd.DIFFERENT, "said": f"through nfsd: {', '.join(differ)}"}
    return {"through_nfsd": ThroughNfsd.SAME}
