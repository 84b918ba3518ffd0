"""The user's own application in a machine: its prepare, run and check commands, and the lines that it prints.

The harness copies this file into machines, into the folder of ledger_writer.py: standard library only. The harness
also imports this file, so that the protocol is defined once; docs/applications.md describes the protocol for users.

The run command inherits a socket that is connected to the harness, and writes one line for each event to it: no other
program delays or holds back an acknowledgement. The check command reads a copy of the application's directory, because
a program that opens its data after a crash usually repairs them first, and the harness reads the same data again.
"""

import binascii
import errno
import os
import signal
import stat
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from typing import Any

DESCRIPTOR, DIRECTORY, SEED = "RAIDPROOF_FD", "RAIDPROOF_DIRECTORY", "RAIDPROOF_SEED"
"""Environment variables of the commands: number of the descriptor for reports, directory of the data, and seed."""
BEGUN, ACKNOWLEDGED = "begun", "acknowledged"
"""First words of the lines that the run command writes; an ID follows."""
WORKER, ENDED, STOPPED = "worker", "ended", "stopped"
"""First words of the lines that this program writes for the application.

Before the command starts: the number of the worker. After its end: its exit status, or that the harness ended it.
"""
PRESENT, WRONG, DAMAGED = "present", "wrong", "damaged"
"""First words of the lines that the check command prints: an ID; an ID and a reason; a reason."""
GREATEST = (1 << 32) - 1
"""The greatest ID."""
COPY = "/run/raidproof/application-data"
"""Folder of the copy of the application's directory that a check command reads."""
PAGE = 4096
"""Unit in bytes in which a file on a tmpfs occupies memory."""
LARGEST = 64 << 20
"""Greatest size in bytes of an application's directory: each check copies it into the memory of a machine."""
NOT_FOUND = 127
"""Status of a command that cannot be started, as in a shell."""
UNUSABLE = 1
"""Status of a check command that cannot use the data."""
NOWHERE = "no directory of this name"
NOT_LOOKED = "reports operations of an empty directory: it does not look at the data"
MISSES_NOTHING = "reports the same without either half of the files of a copy: it does not look at the data"
"""Why a check command gives no result: its output does not depend on the data."""
LEFT = ".raidproof"
"""Name of an empty file in a copy of which files were removed: a directory that is not empty proves nothing."""
_on_nothing: "dict[tuple[str, tuple[str, ...]], Ended]" = {}
"""The end of each check command on an empty directory, by its home and its words."""
_looking: "set[tuple[str, tuple[str, ...]]]" = set()
"""The check commands, by home and words, whose output changed when files were removed from a copy."""
KILLED_S = 2.0
"""Seconds within which a killed command ends."""
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
SHOWN = 500
"""Greatest number of characters of a command's output in a message."""
MOST_MESSAGES = 20
"""Greatest number of lines about damage in the result of a check."""
LONGEST_REASON = 64
"""Greatest number of characters of the reason in a line of the check command."""


def number_of(word: str) -> int:
    """Return the ID in a word.

    Raises:
        ValueError: the word is not a decimal number from 0 to `GREATEST` without leading zeros.
    """
    # isdigit accepts digits of other scripts, and int accepts signs and underscores.
    if not (word.isascii() and word.isdigit()) or (word[0] == "0" and word != "0") or int(word) > GREATEST:
        raise ValueError("%r is not a number from 0 to %d" % (word, GREATEST))
    return int(word)


def is_reason(word: str) -> bool:
    """Return whether a word can be the reason in a line of the check command: printable ASCII, not too long."""
    return len(word) <= LONGEST_REASON and word.isascii() and word.isprintable()


def install(own: dict[str, Any]) -> None:
    """Write the application's files into the folder ``home`` of its configuration, executable, unless it exists."""
    if os.path.exists(own["home"]):
        return
    partial = own["home"] + ".partial"
    os.makedirs(partial, exist_ok=True)
    for name, content in own["files"].items():
        fd = os.open(os.path.join(partial, name), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o755)
        with os.fdopen(fd, "wb") as file:
            file.write(binascii.a2b_base64(content))
    os.rename(partial, own["home"])


def environment(config: dict[str, Any], worker: dict[str, Any], directory: str) -> dict[str, str]:
    """Return the environment of the commands; each worker has a seed of its own."""
    seed = str(config["seed"] + worker["number"])
    return {"PATH": PATH, "HOME": "/root", "LC_ALL": "C.UTF-8", DIRECTORY: directory, SEED: seed}


class Ended:
    """The end of a command: its status (minus the number of a signal; None if it exceeded its limit), and output."""

    def __init__(self, status: int | None, output: str, errors: str) -> None:
        self.status = status
        self.output = output
        self.errors = errors

    def problem(self, limit_s: float) -> str:
        """Return what went wrong, as a clause; empty if the command ended with status 0 within ``limit_s``."""
        if self.status is None:
            return "did not end within %g s" % limit_s
        if self.status:
            last = (self.errors.strip() or self.output.strip())[-SHOWN:]
            return "ended with status %d: %s" % (self.status, last or "no output")
        return ""

    def reports(self) -> bool:
        """Return whether a check command has printed an operation."""
        try:
            found = read_check(self.output)
        except ValueError:
            return False
        return bool(found["ids"] or found["wrong"])


def carry_out(argv: list[str], home: str, variables: dict[str, str], limit_s: float) -> Ended:
    """Run a command to its end, at most ``limit_s`` seconds; then kill its process group."""
    subprocess = import_module("subprocess")
    try:
        process = subprocess.Popen(
            argv,
            cwd=home,
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:
        return Ended(NOT_FOUND, "", "%s: %s" % (argv[0], error.strerror))
    try:
        output, errors = process.communicate(timeout=limit_s)
        status = process.returncode
    except subprocess.TimeoutExpired:
        output, errors, status = b"", b"", None
    kill(process.pid, signal.SIGKILL)
    if status is None:
        # A process that has left the group, and keeps the output open, is not waited for.
        with suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=KILLED_S)
    return Ended(status, output.decode(errors="replace"), errors.decode(errors="replace"))


def kill(group: int, number: int) -> None:
    """Send a signal to the processes of a group, if any is left."""
    with suppress(ProcessLookupError):
        os.killpg(group, number)


def prepare(config: dict[str, Any], worker: dict[str, Any], directory: str) -> None:
    """Make the application's directory, run its prepare command, and make both durable; end this program on errors."""
    own = config["application"]
    install(own)
    os.makedirs(directory, exist_ok=True)
    if own["prepare"]:
        variables = environment(config, worker, directory)
        ended = carry_out(own["prepare"], own["home"], variables, own["prepare_s"])
        if problem := ended.problem(own["prepare_s"]):
            sys.exit("the application's prepare command %s %s" % (" ".join(own["prepare"]), problem))
    os.sync()


class Running:
    """The running run command of an application. Its reports go directly to the harness."""

    def __init__(self, config: dict[str, Any], worker: dict[str, Any], directory: str, connection: Any) -> None:
        subprocess = import_module("subprocess")
        own = config["application"]
        self.stop_s = own["stop_s"]
        self.connection = connection
        self.output = os.memfd_create("output")
        self.process: Any = None
        connection.sendall(("%s %d\n" % (WORKER, worker["number"])).encode())
        variables = environment(config, worker, directory)
        variables[DESCRIPTOR] = str(connection.fileno())
        try:
            self.process = subprocess.Popen(
                own["run"],
                cwd=own["home"],
                env=variables,
                stdin=subprocess.DEVNULL,
                stdout=self.output,
                stderr=self.output,
                pass_fds=(connection.fileno(),),
                start_new_session=True,
            )
        except OSError as error:
            os.write(self.output, ("%s: %s\n" % (own["run"][0], error.strerror)).encode())

    def goes_on(self) -> bool:
        """Return whether the command still runs."""
        return self.process is not None and self.process.poll() is None

    def stop(self) -> int | None:
        """End the command if it still runs, and the processes that it has left; return its status, None if it ran.

        The command gets SIGTERM, and SIGKILL after ``stop_s``.
        """
        if self.process is None:
            status: int | None = NOT_FOUND
        else:
            status = self.process.poll()
            if status is None:
                kill(self.process.pid, signal.SIGTERM)
                try:
                    self.process.wait(timeout=self.stop_s)
                except import_module("subprocess").TimeoutExpired:
                    kill(self.process.pid, signal.SIGKILL)
                    self.process.wait()
            # Processes that the command has left would keep the connection open.
            kill(self.process.pid, signal.SIGKILL)
        if status:
            size = os.fstat(self.output).st_size
            tail = os.pread(self.output, SHOWN, max(0, size - SHOWN)).decode(errors="replace").strip()
            sys.stderr.write("the application's run command ended with status %d: %s\n" % (status, tail))
        return status

    def end(self) -> None:
        """End the command as `stop` does, and report how it has ended over the connection, which must be read."""
        status = self.stop()
        self.connection.sendall(("%s\n" % STOPPED if status is None else "%s %d\n" % (ENDED, status)).encode())
        self.connection.close()


def check(config: dict[str, Any], worker: dict[str, Any], directory: str) -> dict[str, Any]:
    """Run the check command on a copy of the application's directory, and return what the command found.

    ``ids``: the operations that are there; ``wrong``: pairs of an operation and what is wrong with it; ``repeated``:
    pairs of an operation and the number of its lines, if it has more than one; ``damaged``: damage that belongs to no
    single operation; ``unreadable``: errors of reads; ``failed``: why the command gave no result, else empty;
    ``broken``: how the command failed on these data, although it works on an empty directory; else missing.
    """
    own = config["application"]
    copy = own.get("copy", COPY)
    install(own)
    found: dict[str, Any] = {"ids": [], "wrong": [], "repeated": [], "damaged": [], "unreadable": [], "failed": ""}
    if (size := size_of(directory)) > LARGEST:
        found["failed"] = "the application's directory has %d bytes; a check copies at most %d" % (size, LARGEST)
        return found
    blank = on_nothing(config, worker, copy)
    if blank.status is None or blank.reports():
        found["failed"] = blank.problem(own["check_s"]) or NOT_LOOKED
        return found
    try:
        found["unreadable"] = copy_of(directory, copy, own["check_s"])
    except NoCopy as error:
        found["failed"] = "got no data: %s" % error
        return found
    ended = carry_out(own["check"], own["home"], environment(config, worker, copy), own["check_s"])
    if problem := ended.problem(own["check_s"]):
        found["broken" if ended.status == UNUSABLE and not blank.status else "failed"] = problem
        return found
    try:
        shown = read_check(ended.output)
    except ValueError as error:
        found["failed"] = str(error)
        return found
    if shown["ids"] and not looks(config, worker, directory, shown):
        found["failed"] = MISSES_NOTHING
    else:
        found.update(shown)
    return found


def looks(config: dict[str, Any], worker: dict[str, Any], directory: str, shown: dict[str, Any]) -> bool:
    """Return whether a check command misses something if half of the files are removed; once in this process.

    ``shown``: what it reports of a whole copy. Either half may have only files that an application makes anew.
    """
    own = config["application"]
    key, copy = (own["home"], tuple(own["check"])), own.get("copy", COPY)
    names = sorted(os.path.join(folder, name) for folder, _, files in os.walk(directory) for name in files)
    halves = [half for half in (names[::2], names[1::2]) if half]
    if key in _looking or not halves:
        return True
    for half in halves:
        try:
            copy_of(directory, copy, own["check_s"])
        except NoCopy:
            return True
        for name in half:
            with suppress(OSError):
                os.unlink(os.path.join(copy, os.path.relpath(name, directory)))
        os.mknod(os.path.join(copy, LEFT), 0o600 | stat.S_IFREG)
        ended = carry_out(own["check"], own["home"], environment(config, worker, copy), own["check_s"])
        try:
            same = not ended.status and read_check(ended.output) == shown
        except ValueError:
            same = False
        if not same:
            _looking.add(key)
            return True
    return False


def on_nothing(config: dict[str, Any], worker: dict[str, Any], copy: str) -> Ended:
    """Run the check command on an empty directory, once in this process, and return its end.

    A command that looks at the data finds no operation there.
    """
    own = config["application"]
    key = own["home"], tuple(own["check"])
    if key not in _on_nothing:
        copy_of(os.path.join(own["home"], NOWHERE), copy, own["check_s"])
        _on_nothing[key] = carry_out(own["check"], own["home"], environment(config, worker, copy), own["check_s"])
    return _on_nothing[key]


def size_of(directory: str) -> int:
    """Return the total size in bytes of the files below a directory; 0 if it does not exist."""
    return sum(status.st_size for status in files_below(directory))


def allocated(directory: str) -> int:
    """Return the number of bytes that a copy of the files below a directory occupies; holes occupy nothing."""
    return sum(min(status.st_blocks * 512, -(-status.st_size // PAGE) * PAGE) for status in files_below(directory))


def files_below(directory: str) -> Iterator[os.stat_result]:
    """Yield the status of each file below a directory that can be read."""
    for folder, _, names in os.walk(directory):
        for name in names:
            with suppress(OSError):
                yield os.lstat(os.path.join(folder, name))


class NoCopy(Exception):
    """The machine could not copy the application's directory, whatever the directory contains."""


def copy_of(directory: str, copy: str, limit_s: float) -> list[str]:
    """Replace the folder ``copy`` by a copy of a directory, empty if there is none; return the errors of reads.

    Raises:
        NoCopy: the copy has no room in the machine, or was ended by a signal, or took longer than ``limit_s``.
    """
    everything = {"PATH": PATH, "LC_ALL": "C"}
    carry_out(["rm", "-rf", copy], "/", everything, limit_s)
    os.makedirs(copy)
    try:
        os.lstat(directory)
    except OSError as error:
        return [] if error.errno in (errno.ENOENT, errno.ENOTDIR) else ["%s: %s" % (directory, error.strerror)]
    room = os.statvfs(copy)
    if room.f_bavail * room.f_frsize < allocated(directory):
        raise NoCopy("the machine has room for %d bytes, too little for a copy" % (room.f_bavail * room.f_frsize))
    ended = carry_out(["cp", "-a", os.path.join(directory, "."), copy], "/", everything, limit_s)
    if ended.status is None or ended.status < 0:
        raise NoCopy("cp %s" % ended.problem(limit_s))
    return ended.errors.strip().splitlines()[:MOST_MESSAGES] if ended.status else []


def read_check(output: str) -> dict[str, Any]:
    """Return the operations and the damage in the output of a check command.

    Raises:
        ValueError: a line is none of those that a check command may print, or the last line is incomplete.
    """
    present: list[int] = []
    wrong: list[tuple[int, str]] = []
    damaged: list[str] = []
    if output and not output.endswith("\n"):
        raise ValueError("the last line of its output is incomplete: %r" % output[-80:])
    for number, line in enumerate(output.splitlines(), start=1):
        try:
            read_line(line.split(), present, wrong, damaged)
        except ValueError as error:
            raise ValueError("line %d of its output, %r: %s" % (number, line[:80], error)) from error
    times = Counter([*present, *(number for number, _ in wrong)])
    return {
        "ids": sorted({*present} - {number for number, _ in wrong}),
        "wrong": sorted([*one] for one in dict(wrong).items()),
        "repeated": sorted([number, count] for number, count in times.items() if count > 1),
        "damaged": damaged,
    }


def read_line(words: list[str], present: list[int], wrong: list[tuple[int, str]], damaged: list[str]) -> None:
    """Enter one line of a check command into the collections.

    Raises:
        ValueError: a check command may not print such a line.
    """
    if len(words) == 2 and words[0] == PRESENT:
        present.append(number_of(words[1]))
    elif len(words) == 3 and words[0] == WRONG and is_reason(words[2]):
        wrong.append((number_of(words[1]), words[2]))
    elif len(words) == 2 and words[0] == DAMAGED and is_reason(words[1]):
        damaged.append(words[1])
    else:
        raise ValueError("expected '%s ID', '%s ID REASON' or '%s REASON'" % (PRESENT, WRONG, DAMAGED))
