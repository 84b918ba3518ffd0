"""Programs that keep the processors of this host busy."""

import os
import subprocess
import sys
from contextlib import ExitStack

LOOP = "import os, sys\nwhile os.getppid() == int(sys.argv[1]): pass"
"""A program that ends when the process that started it has ended."""


class Load:
    """Keeps this worker's share of the host's processors busy on request."""

    def __init__(self, workers: int) -> None:
        self._loops = max(1, (os.cpu_count() or 1) // workers)
        self._undo = ExitStack()
        self._busy = False

    def set(self, *, busy: bool) -> bool:
        """Start or end the programs, and return ``busy``."""
        if busy and not self._busy:
            for _ in range(self._loops):
                self._undo.callback(_end, subprocess.Popen([sys.executable, "-c", LOOP, str(os.getpid())]))
        elif not busy:
            self._undo.close()
        self._busy = busy
        return busy

    def close(self) -> None:
        """End the programs."""
        self._undo.close()


def _end(loop: "subprocess.Popen[bytes]") -> None:
    loop.kill()
    loop.wait()
