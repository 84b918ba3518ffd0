"""Meter of the user's own application in a machine: it runs the application for a time, and dates its reports.

The harness copies this file into machines, into the folder of application.py: standard library only. Run as
``application_meter.py CONFIG``, where CONFIG is a JSON file. It prints the result of `measure` as JSON. The throughput
needs no report outside the machine, so this program receives the reports itself.
"""

import json
import os
import select
import socket
import sys
from importlib import import_module
from time import monotonic_ns
from typing import Any

# In a machine both files are in one folder, in the harness in a package.
application = import_module("raidproof.guest.application" if __package__ else "application")

POLL_S = 0.1
"""Interval in seconds of the test whether the command still runs."""


class Failed(Exception):
    """The run command of the application failed."""


class Dates:
    """The dates of the reports of an application, in ns since its first report.

    Reports that arrive together have the same date: an operation that returns within a time slice of the kernel's
    scheduler, without waiting for a disk or the network, can have a latency of 0.
    """

    def __init__(self) -> None:
        self.first_ns: int | None = None
        self.begun: dict[int, int] = {}
        self.acknowledged: list[tuple[int, int]] = []
        """Acknowledgement and latency of each operation, in ns."""
        self._rest = b""

    def take(self, data: bytes, now_ns: int) -> None:
        """Enter received data.

        Raises:
            ValueError: a line is no report.
        """
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            try:
                self._enter(line.decode(errors="replace").split(" "), now_ns)
            except ValueError as error:
                raise ValueError("the application sent the line %r: %s" % (line[:80], error)) from error

    def _enter(self, words: list[str], now_ns: int) -> None:
        if words[0] in (application.WORKER, application.ENDED, application.STOPPED):
            return
        if len(words) != 2 or words[0] not in (application.BEGUN, application.ACKNOWLEDGED):
            raise ValueError("expected '%s ID' or '%s ID'" % (application.BEGUN, application.ACKNOWLEDGED))
        number = application.number_of(words[1])
        if words[0] == application.BEGUN:
            self.first_ns = now_ns if self.first_ns is None else self.first_ns
            self.begun[number] = now_ns
        elif number in self.begun:
            self.acknowledged.append((now_ns - (self.first_ns or 0), now_ns - self.begun.pop(number)))
        else:
            raise ValueError("operation %d has not begun" % number)


def measure(config: dict[str, Any]) -> dict[str, Any]:
    """Run the run command for ``seconds`` from its first report on, or until it ends.

    Return the acknowledgements and latencies in us, and the time until the last acknowledgement in s.

    Raises:
        Failed: the run command ended with another status than 0, which is on standard error.
        ValueError: a line of the application is no report.
    """
    mine, its = socket.socketpair()
    dates = Dates()
    running = application.Running(config, config["worker"], config["directory"], its)
    end_ns: int | None = None
    try:
        while running.goes_on() and (end_ns is None or monotonic_ns() < end_ns):
            if select.select([mine], [], [], POLL_S)[0]:
                dates.take(mine.recv(1 << 16), monotonic_ns())
            if end_ns is None and dates.first_ns is not None:
                end_ns = dates.first_ns + int(config["seconds"] * 1e9)
        stopped = running.goes_on()
        while not stopped and select.select([mine], [], [], 0)[0]:
            dates.take(mine.recv(1 << 16), monotonic_ns())
    finally:
        # Nothing is read any more: the application may stand in a write to the full socket, until it is killed.
        status = running.stop()
        its.close()
        mine.close()
    if status:
        raise Failed
    last = max((at for at, _ in dates.acknowledged), default=0)
    return {
        "seconds": last / 1e9,
        "acknowledged_us": [at // 1000 for at, _ in dates.acknowledged],
        "latency_us": [latency // 1000 for _, latency in dates.acknowledged],
    }


if __name__ == "__main__":
    with open(sys.argv[1]) as config_file:
        given = json.load(config_file)
    if given["step"] == "prepare":
        application.prepare(given, given["worker"], given["directory"])
    else:
        try:
            result = measure(given)
        except Failed:
            sys.exit(1)
        except ValueError as error:
            sys.exit(str(error))
        json.dump(result, sys.stdout, separators=(",", ":"))
        sys.stdout.write(os.linesep)
