"""A request (a round of a plan, ...) in a process of its own on a worker: its end ends all labs of the request.

The process reads its standard input, which the worker keeps open. The end of this input, also that by the death of the
worker, interrupts the process as SIGTERM does.
"""

import os
import pickle
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import raidproof
from raidproof.cluster.proof import Unsound
from raidproof.core.errors import RaidproofError, RigError
from raidproof.core.log import be_silent
from raidproof.core.scratch import scratch_folder
from raidproof.core.waiting import unwind_on_signals

POLL_S = 0.5
"""Interval in seconds at which the worker examines whether the request is still wanted."""
END_S = 60.0
"""Time limit in seconds for the end of the labs of an interrupted request."""
REQUEST, RESULT, OUTPUT = "request", "result", "output"
"""Files in the folder of a request: what is requested, what was made, and what the process printed."""
WANTED_NO_MORE = b"."
"""What a worker writes to the process of a request before it ends it; a killed worker writes nothing."""
LINES = 5
"""Number of lines of the output in the message of an error."""


def made_in_process(job: Any, request: Any, wanted: Callable[[], bool]) -> Any:
    """Carry out a request of a job in a process of its own, as long as ``wanted`` returns True.

    ``job`` has a method ``carried_out`` with the request and a folder, as `rounds.PlanJob`; return its result.

    Raises:
        RigError: the process ended without a result; or the error that ended the request.
    """
    with scratch_folder("round") as folder:
        (folder / REQUEST).write_bytes(pickle.dumps((job, request)))
        command = [sys.executable, "-P", "-m", __name__, str(folder)]
        with (folder / OUTPUT).open("wb") as output:
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment(),
                start_new_session=True,
            )
        try:
            while wanted():
                try:
                    process.wait(POLL_S)
                    break
                except subprocess.TimeoutExpired:
                    continue
        finally:
            end(process)
        if not (folder / RESULT).exists():
            raise RigError(f"the process of {request.label} ended with status {process.returncode}: {tail(folder)}")
        failed, result = pickle.loads((folder / RESULT).read_bytes())  # noqa: S301  this process's own child
    if failed:
        raise RigError(result)
    return result


def environment() -> dict[str, str]:
    """Return the environment of the process of a request, which imports the same raidproof as this process."""
    paths = [str(Path(raidproof.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}


def end(process: "subprocess.Popen[bytes]") -> None:
    """Interrupt the process of a request, unless it has ended, and wait for its end."""
    assert process.stdin is not None  # noqa: S101  it is a pipe
    with suppress(BrokenPipeError):
        process.stdin.write(WANTED_NO_MORE)
        process.stdin.close()
    try:
        process.wait(END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def tail(folder: Path) -> str:
    """Return the last lines that the process of a request printed."""
    return " / ".join((folder / OUTPUT).read_text(errors="replace").splitlines()[-LINES:]) or "no output"


def end_with_worker(orphaned: threading.Event) -> None:
    """Wait for the end of standard input, then interrupt this process.

    ``orphaned`` is set if the worker was killed: then this process must remove the folder of the request.
    """
    last = b""
    while read := os.read(sys.__stdin__.fileno() if sys.__stdin__ else 0, 1):
        last = read
    if last != WANTED_NO_MORE:
        orphaned.set()
    os.kill(os.getpid(), signal.SIGTERM)


def main() -> None:
    """Carry out the request in the folder that the command line names, and write the result into this folder."""
    folder, orphaned = Path(sys.argv[1]), threading.Event()
    unwind_on_signals()
    threading.Thread(target=end_with_worker, args=(orphaned,), daemon=True).start()
    be_silent()
    job, request = pickle.loads((folder / REQUEST).read_bytes())  # noqa: S301  written by the worker
    failed = False
    try:
        result = job.carried_out(request, folder)
    except (Unsound, RaidproofError, OSError, MemoryError) as error:
        failed, result = True, str(error) or type(error).__name__
    except KeyboardInterrupt:
        if orphaned.is_set():
            shutil.rmtree(folder, ignore_errors=True)
        raise
    aside = folder / f"{RESULT}.new"
    aside.write_bytes(pickle.dumps((failed, result)))
    aside.rename(folder / RESULT)


if __name__ == "__main__":
    main()
