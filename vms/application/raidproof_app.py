"""Test your own application with raidproof: copy this file beside your program (Python 3.8 or newer, nothing else).

In the command `run`:

    import raidproof_app as raidproof

    raidproof.begun(17)          # before operation 17 changes anything
    ...                          # write, and make durable
    raidproof.acknowledged(17)   # where the application would say "done" to its user

In the command `check`, for what is there after the crash:

    raidproof.present(17)        # operation 17 is there, and complete; once for each time that it is there
    raidproof.wrong(18, "half")  # operation 18 is there, but not as it was written
    raidproof.damaged("index")   # something is damaged that belongs to no single operation

An ID is a number from 0 to 4294967295; each operation of a run has its own. `directory()` is the directory for the
data, `seed()` a number for random choices. Without raidproof the reports have no effect: the program also runs alone.
"""

import os
import sys
import threading

_lock = threading.Lock()


def directory() -> str:
    """Return the directory of the application's data; without raidproof, the current directory."""
    return os.environ.get("RAIDPROOF_DIRECTORY", ".")


def seed() -> int:
    """Return the seed of the run; each client has a seed of its own. Without raidproof: 1."""
    return int(os.environ.get("RAIDPROOF_SEED", "1"))


def begun(number: int) -> None:
    """Report that an operation begins. Call this before the operation changes anything."""
    _report("begun", number)


def acknowledged(number: int) -> None:
    """Report that an operation is durable. Call this where the application would tell its user that it is done."""
    _report("acknowledged", number)


def present(number: int) -> None:
    """Print that an operation is there, complete and as it was written."""
    print(f"present {number:d}")


def wrong(number: int, reason: str) -> None:
    """Print that an operation is there with other content; ``reason``: one word."""
    print(f"wrong {number:d} {reason}")


def damaged(reason: str) -> None:
    """Print that something is damaged that belongs to no single operation; ``reason``: one word."""
    print(f"damaged {reason}")


def _report(what: str, number: int) -> None:
    descriptor = os.environ.get("RAIDPROOF_FD")
    if descriptor is None:
        return
    line = f"{what} {number:d}\n".encode()
    # One write for each line, at once: a buffer in this process would lose acknowledgements in a crash.
    with _lock:
        while line:
            line = line[os.write(int(descriptor), line) :]


if __name__ == "__main__":
    sys.exit("raidproof_app is a module: import it")
