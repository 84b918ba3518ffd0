"""A crash state as a run would see it: on the engine's disks, by a machine that boots with it, through nfsd too."""

from contextlib import ExitStack
from pathlib import Path
from typing import Any

from harness.command import CommandFailed
from harness.crash.agent_line import AgentLine, Lost
from harness.crash.look import Look
from harness.crash.observation import End, Observation, ThroughNfsd
from harness.export import Export
from harness.filesystem import DIRECTORY
from harness.lab import EnclosedLab
from harness.mount import Mount
from harness.stack import StackSpec

_GRACE_ENDS = ["tee", "/proc/fs/nfsd/v4_end_grace"]


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
    """Export, mount on the server itself, and read once more; what of that does not work is said, and ends nothing."""
    machine = lab.server
    export = Export(stack.export, machine, DIRECTORY)
    root = stack.export.fsid == 0 and stack.mount.vers != "3"
    mount = Mount(stack.mount, machine, f"{machine.address}:{'/' if root else export.path}")
    below = Path(orders["ledger"]["root"]).relative_to(DIRECTORY)
    look.stage("nfsd")
    try:
        with ExitStack() as undo:
            undo.callback(export.deactivate)
            export.activate()
            # Nobody has anything to reclaim.
            machine.run(_GRACE_ENDS, stdin="Y\n")
            mount.activate()
            undo.callback(mount.deactivate)
            seen = look.ask(agent, "look", str(Path(mount.directory) / below))["found"]
    except (CommandFailed, ExceptionGroup) as error:
        return {"said": f"nfsd: {error}"}
    if differ := differing(direct, seen):
        return {"through_nfsd": ThroughNfsd.DIFFERENT, "said": f"through nfsd: {', '.join(differ)}"}
    return {"through_nfsd": ThroughNfsd.SAME}


def differing(direct: dict[str, Any], seen: dict[str, Any]) -> list[str]:
    """Return the workers whose files were seen in two ways."""
    return sorted(key for key in direct if direct[key] != seen.get(key))
