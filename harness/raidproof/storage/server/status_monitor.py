"""rpc.statd of the server: it notifies NFSv3 clients of a reboot, so that they get their locks again (rpc.statd(8)).

NFSv4 needs none: there a client learns of a reboot from the server's replies.
"""

from raidproof.core.layer import Machine

PROGRAM = "rpc.statd"


class StatusMonitor:
    """rpc.statd on the server of an export that NFSv3 clients mount. It needs rpcbind, as NFSv3 does."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self._started = False
        """Whether this object has started rpc.statd; that of the machine itself keeps running."""

    def activate(self) -> None:
        """Start rpc.statd, unless it runs. nfsd grants no lock to an NFSv3 client without it."""
        if not self.machine.run(["pgrep", "--exact", PROGRAM]).ok:
            self.machine.succeed([PROGRAM, "--no-notify"])
            self._started = True

    def notify(self) -> None:
        """Notify the clients that had locks before the server's last boot, unless it was done since (sm-notify(8)).

        nfsd must be running: a client claims its locks again at once, and lockd's grace period has begun.
        """
        self.machine.succeed(["sm-notify"])

    def deactivate(self) -> None:
        """End rpc.statd if this object has started it."""
        if self._started:
            self.machine.succeed(["pkill", "--exact", PROGRAM])
            self._started = False
