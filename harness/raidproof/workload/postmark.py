"""The workload postmark: many small files that exist for a short time, as on a mail server.

Debian's postmark 1.53 (which prints 1.51) has defects: its clock has whole seconds; it ends with status 0 after every
error; it counts writes that failed because the file system was full. With a bias far from 5 it runs out of files, or
fills its table of files; later transactions then do nothing. This module reports an error in each of these cases, and
states the uncertainty of the clock.
"""

import re
from typing import Literal, Self

from pydantic import Field, model_validator

from raidproof.core.errors import DeadlineExceeded, RequestError, RigError
from raidproof.core.layer import Machine, State, found_in
from raidproof.core.units import KIB, Size
from raidproof.workload.workload import (
    DirectoryTool,
    Place,
    Sample,
    Work,
    WorkloadSpec,
    require_ended_well,
    run_limited,
)

SLOWEST_PER_S = 5
"""Operations per second below which postmark is assumed to loop; one disk of 2001 reached 17 transactions/s."""
SHORTEST_DEADLINE_S = 60.0
"""Minimum deadline in seconds that is computed from `SLOWEST_PER_S`."""
EVEN = 5
"""The bias at which both kinds of transaction are equally likely."""
CLUSTER = 4 * KIB
"""Minimum number of bytes that a file occupies in the file system."""
_UNITS = {"bytes": 1, "kilobytes": KIB, "megabytes": KIB**2, "gigabytes": KIB**3, "terabytes": KIB**4}
"""Bytes in each unit that postmark prints."""


class PostmarkSpec(WorkloadSpec):
    """The options of postmark; the defaults are those of a published test of RAID5 from 2001."""

    tool: Literal["postmark"] = "postmark"
    smallest: Size = Field(default=10 * KIB, ge=1)
    """Bytes of the smallest file (``set size``)."""
    largest: Size = Field(default=20 * KIB, ge=1)
    """Bytes of the largest file (``set size``)."""
    number: int = Field(default=10_000, ge=1)
    """Number of files that exist when the transactions begin; postmark's table holds twice this number."""
    transactions: int = Field(default=100_000, ge=10)
    """Number of transactions; fewer than 10 cause a division by zero in postmark."""
    subdirectories: int = Field(default=10, ge=0)
    """Number of directories for the files; 0: all files are in one directory."""
    read: Size = Field(default=512, ge=1)
    """Bytes of one read."""
    write: Size = Field(default=512, ge=1)
    """Bytes of one write."""
    bias_read: int = Field(default=EVEN, ge=-1, le=10)
    """Share of reads among the transactions that read or append, in tenths; -1: postmark neither reads nor appends."""
    bias_create: int = Field(default=EVEN, ge=-1, le=10)
    """Share of creates among the transactions that create or delete a file, in tenths; -1: postmark does neither."""
    buffering: bool = True
    """Whether postmark uses stdio instead of read(2) and write(2)."""
    seed: int = Field(default=42, ge=0)
    """Seed of postmark's random numbers."""
    deadline_s: float | None = Field(default=None, gt=0)
    """Seconds after which raidproof ends postmark. None: the time of all operations at 5 per second, at least 60 s."""

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.smallest > self.largest:
            raise RequestError(
                f"postmark: smallest ({self.smallest} bytes) must not exceed largest ({self.largest} bytes)"
            )
        if self.bias_create >= 0:
            growth = (2 * self.bias_create - 10) * self.transactions // 10
            if abs(growth) >= self.number:
                how = "would run out of files" if growth < 0 else "would fill its table of files and then do nothing"
                raise RequestError(
                    f"postmark {how}: {self.biases}, {self.transactions} transactions, {self.number} files",
                    remedy=f"set bias_create = {EVEN}, or number to more than {abs(growth)}",
                )
        return self

    @property
    def biases(self) -> str:
        """The values of ``bias_read`` and ``bias_create`` as text, for error messages."""
        return f"bias_read {self.bias_read}, bias_create {self.bias_create}"

    @property
    def limit_s(self) -> float:
        """Seconds after which raidproof ends postmark, because postmark is assumed to loop."""
        work = 2 * self.number + self.transactions
        return self.deadline_s or max(SHORTEST_DEADLINE_S, work / SLOWEST_PER_S)

    def workload(self) -> "Postmark":
        """Return the workload that runs postmark with these settings."""
        return Postmark(self)

    def work(self) -> Work:
        """Return the properties of the workload's timed part that decide which caches can serve its I/O."""
        # postmark reads and extends files that it has just written, and closes each.
        working_set = self.workload().working_set
        return Work(working_set, reads=self.bias_read > 0, writes=True, once=False, closes=True, everywhere=True)


class PostmarkState(State):
    """The results in postmark's report."""

    transactions_s: int
    """Transactions per second, truncated."""
    total_seconds: int
    """Duration of the whole run in seconds."""
    transaction_seconds: int
    """Duration of the transactions in seconds."""
    created_mixed: int
    """Number of files that transactions created."""
    deleted_mixed: int
    """Number of files that transactions deleted."""
    read_files: int
    """Number of transactions that read a file."""
    appended_files: int
    """Number of transactions that appended to a file."""
    created: int
    """Number of files created in the whole run."""
    deleted: int
    """Number of files deleted in the whole run."""
    read_bytes: int
    """Bytes read, rounded to two decimals of the unit that postmark prints."""
    written_bytes: int
    """Bytes written, rounded in the same way."""


def postmark_command() -> list[str]:
    """Return the postmark command, which reads its settings from standard input."""
    return ["postmark"]


def postmark_input(spec: PostmarkSpec, directory: str) -> str:
    """Return the commands for postmark's standard input."""
    lines = {
        "size": f"{spec.smallest} {spec.largest}",
        "number": spec.number,
        "transactions": spec.transactions,
        "subdirectories": spec.subdirectories,
        "read": spec.read,
        "write": spec.write,
        "bias read": spec.bias_read,
        "bias create": spec.bias_create,
        "buffering": "true" if spec.buffering else "false",
        "seed": spec.seed,
        "report": "verbose",
        "location": directory,
    }
    return "".join(f"set {name} {value}\n" for name, value in lines.items()) + "run\nquit\n"


def parse_postmark(text: str, biases: str = "") -> PostmarkState:
    """Return the figures in a verbose report of postmark; ``biases``: text for error messages.

    Raises:
        RigError: postmark ran out of files or printed an error, or the report is truncated or malformed.
    """
    if "out of files!" in text:
        raise RigError(
            f"postmark ran out of files ({biases})",
            remedy="set bias_create = 5, a larger number (of files), or fewer transactions",
        )
    if complaint := re.search(r"^(?:pm>)*(Error:.*|Eh\?)$", text, re.MULTILINE):
        raise RigError(f"postmark: {complaint.group(1)}")
    # postmark prints its prompt after the complete report.
    if not re.search(r"written \([\d.]+ \w+ per second\)\n(?:pm>)", text):
        raise RigError(f"postmark's report is truncated ({biases}): {text[-200:]!r}")

    def number(pattern: str) -> int:
        return int(found_in(pattern, text, "a figure of postmark's report"))

    def volume(what: str) -> int:
        pattern = rf"^\t([\d.]+ \w+) {what} \("
        size, unit = found_in(pattern, text, f"the number of bytes {what} in postmark's report").split()
        if unit not in _UNITS:
            raise RigError(f"postmark's report has the unknown unit {unit!r}")
        return round(float(size) * _UNITS[unit])

    creating, deleting = (
        rf"^\t(?:\d+ {word} \(.*\)\n\t\t.*\n\t\tMixed with transactions: )(\d+) files"
        for word in ("created", "deleted")
    )
    return PostmarkState(
        transactions_s=number(r"^\t\d+ seconds of transactions \((\d+) per second\)"),
        total_seconds=number(r"^\t(\d+) seconds total$"),
        transaction_seconds=number(r"^\t(\d+) seconds of transactions"),
        created_mixed=number(creating),
        deleted_mixed=number(deleting),
        read_files=number(r"^\t(\d+) read \("),
        appended_files=number(r"^\t(\d+) appended \("),
        created=number(r"^\t(\d+) created \("),
        deleted=number(r"^\t(\d+) deleted \("),
        read_bytes=volume("read"),
        written_bytes=volume("written"),
    )


def require_all_done(spec: PostmarkSpec, state: PostmarkState) -> None:
    """Check that each transaction that postmark counts took effect, and that postmark deleted all of its files.

    Raises:
        RigError: transactions did nothing, because the table of files was full, or a file was not deleted.
    """
    done = state.created_mixed + state.deleted_mixed
    if spec.bias_create >= 0 and done != spec.transactions:
        raise RigError(
            f"postmark: {spec.transactions - done} of {spec.transactions} transactions created or deleted no file"
            f" ({spec.biases}): its table of {2 * spec.number} files was full",
            remedy="set bias_create = 5, or a larger number (of files)",
        )
    if state.created != state.deleted:
        raise RigError(f"postmark created {state.created} files, but deleted {state.deleted} files")


def postmark_sample(states: dict[str, PostmarkState], transactions: int, output: dict[str, str]) -> Sample:
    """Return the sums of the rates of all machines, which ran postmark at the same time."""
    seconds = max(state.transaction_seconds for state in states.values())
    read = sum(state.read_bytes for state in states.values())
    written = sum(state.written_bytes for state in states.values())
    values = {
        # Not postmark's own rate, which is truncated to a whole number: 17.9 becomes 17.
        "transactions_s": sum(transactions / state.transaction_seconds for state in states.values()),
        "read_mb_s": sum(state.read_bytes / state.total_seconds for state in states.values()) / 1e6,
        "write_mb_s": sum(state.written_bytes / state.total_seconds for state in states.values()) / 1e6,
        # postmark's clock has whole seconds: the share of one second in the shortest time.
        "uncertainty_percent": 100.0 / min(state.transaction_seconds for state in states.values()),
    }
    return Sample(
        primary="transactions_s",
        values=values,
        seconds=seconds,
        read_bytes=read,
        written_bytes=written,
        output=output,
    )


class Postmark(DirectoryTool[PostmarkSpec]):
    """Runs postmark on all machines at the same time, each in its own directory."""

    programs = ("postmark", "timeout")

    @property
    def working_set(self) -> int:
        """Bytes of the files of one machine that exist at a time, at the mean of the smallest and the largest size."""
        return self.spec.number * (self.spec.smallest + self.spec.largest) // 2

    def room(self) -> int:
        """Return the maximum number of bytes of one machine's files; postmark ignores a full file system."""
        most = 2 * self.spec.number if self.spec.bias_create > EVEN else self.spec.number * 3 // 2
        return most * (self.spec.largest + CLUSTER)

    def run(self, place: Place) -> Sample:
        """Run postmark on all machines at the same time.

        Raises:
            RigError: postmark exceeded its deadline, crashed or ran out of files, or its report is malformed.
        """
        output = self.run_everywhere(place)
        states = {name: parse_postmark(text, self.spec.biases) for name, text in output.items()}
        for state in states.values():
            require_all_done(self.spec, state)
        return postmark_sample(states, self.spec.transactions, output)

    def run_on(self, machine: Machine, directory: str) -> str:
        """Run postmark on one machine, and return its report and its first error message."""
        stdin = postmark_input(self.spec, directory)
        try:
            ended = run_limited(machine, postmark_command(), self.spec.limit_s, stdin=stdin)
        except DeadlineExceeded as error:
            raise RigError(
                f"{machine.name}: postmark did not end in {self.spec.limit_s:g} s ({self.spec.biases})",
                remedy="set bias_read and bias_create near 5 (others may make postmark loop), or a longer deadline_s",
            ) from error
        try:
            # postmark prints thousands of errors to standard error, and still ends with status 0.
            return "\n".join([require_ended_well(ended, "postmark"), *ended.stderr.splitlines()[:1]])
        except RigError as error:
            raise RigError(f"{error} ({self.spec.biases})") from error
