"""postmark: many small short-lived files, as on a mail server; results from its report.

Pitfalls of Debian's postmark 1.53 (which prints 1.51): its clock has whole seconds; it ends with status 0 whatever
happened; it counts writes that failed for lack of room; with a bias far from 5 it runs out of files or fills its
table, after which transactions do nothing. All of these are refused here.
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
"""Operations per second below which postmark is assumed to loop; a single disk of 2001 did 17 transactions/s."""
SHORTEST_DEADLINE_S = 60.0
EVEN = 5
"""The bias at which both sides are equally likely."""
CLUSTER = 4 * KIB
"""Bytes that a file occupies at least."""
_UNITS = {"bytes": 1, "kilobytes": KIB, "megabytes": KIB**2, "gigabytes": KIB**3, "terabytes": KIB**4}


class PostmarkSpec(WorkloadSpec):
    """Options of postmark; the defaults are those of the published RAID5 test of 2001."""

    tool: Literal["postmark"] = "postmark"
    smallest: Size = Field(default=10 * KIB, ge=1)
    largest: Size = Field(default=20 * KIB, ge=1)
    """``set size``: the range of file sizes."""
    number: int = Field(default=10_000, ge=1)
    """Files that exist when the transactions begin; postmark's table holds twice as many."""
    transactions: int = Field(default=100_000, ge=10)
    """postmark divides by a tenth of them: fewer than ten cause a floating point exception."""
    subdirectories: int = Field(default=10, ge=0)
    read: Size = Field(default=512, ge=1)
    write: Size = Field(default=512, ge=1)
    bias_read: int = Field(default=EVEN, ge=-1, le=10)
    """Tenths of transactions that read rather than append; -1: neither."""
    bias_create: int = Field(default=EVEN, ge=-1, le=10)
    """Tenths of transactions that create rather than delete; -1: neither."""
    buffering: bool = True
    """Use stdio rather than read(2) and write(2)."""
    seed: int = Field(default=42, ge=0)
    deadline_s: float | None = Field(default=None, gt=0)
    """None: the time for 5 operations per second."""

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.smallest > self.largest:
            raise RequestError(
                f"postmark: files from {self.smallest} to {self.largest} bytes; the smaller comes first"
            )
        if self.bias_create >= 0:
            growth = (2 * self.bias_create - 10) * self.transactions // 10
            if abs(growth) >= self.number:
                how = "would run out of files" if growth < 0 else "would fill its table and then do nothing"
                raise RequestError(
                    f"postmark: {self.biases}, {self.transactions} transactions, {self.number} files: it {how}",
                    remedy=f"bias_create {EVEN}, or more than {abs(growth)} files",
                )
        return self

    @property
    def biases(self) -> str:
        """The biases, for messages."""
        return f"bias_read {self.bias_read}, bias_create {self.bias_create}"

    @property
    def limit_s(self) -> float:
        """Seconds after which postmark is assumed to loop."""
        work = 2 * self.number + self.transactions
        return self.deadline_s or max(SHORTEST_DEADLINE_S, work / SLOWEST_PER_S)

    def workload(self) -> "Postmark":
        """Return the tool with these settings, ready to run."""
        return Postmark(self)

    def work(self) -> Work:
        """Return the requests of the timed part that matter to caches."""
        # postmark reads and appends to files that it has just written, and closes each.
        working_set = self.workload().working_set
        return Work(working_set, reads=self.bias_read > 0, writes=True, once=False, closes=True, everywhere=True)


class PostmarkState(State):
    """The figures of postmark's report. Its byte counts have two decimals of the unit that postmark prints."""

    transactions_s: int
    total_seconds: int
    transaction_seconds: int
    created_mixed: int
    deleted_mixed: int
    read_files: int
    appended_files: int
    created: int
    deleted: int
    read_bytes: int
    written_bytes: int


def postmark_command() -> list[str]:
    """Return the command; postmark reads its settings from standard input."""
    return ["postmark"]


def postmark_orders(spec: PostmarkSpec, directory: str) -> str:
    """Return the orders for postmark's standard input."""
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
    """Parse a verbose report.

    Raises:
        RigError: postmark ran out of files or failed, or its report is not whole; names the biases if they are the
            cause.
    """
    if "out of files!" in text:
        raise RigError(f"postmark ran out of files ({biases})", remedy="bias_create 5, more files, fewer transactions")
    if complaint := re.search(r"^(?:pm>)*(Error:.*|Eh\?)$", text, re.MULTILINE):
        raise RigError(f"postmark: {complaint.group(1)}")
    # The prompt after the report marks its end.
    if not re.search(r"written \([\d.]+ \w+ per second\)\n(?:pm>)", text):
        raise RigError(f"postmark's report is not whole ({biases}): {text[-200:]!r}")

    def number(pattern: str) -> int:
        return int(found_in(pattern, text, "a figure of postmark's report"))

    def volume(what: str) -> int:
        pattern = rf"^\t([\d.]+ \w+) {what} \("
        size, unit = found_in(pattern, text, f"what postmark has {what}").split()
        if unit not in _UNITS:
            raise RigError(f"postmark counts in {unit!r}")
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
    """Check that every transaction did what it counts as.

    Raises:
        RigError: some did nothing, because the table was full, or no file could be removed.
    """
    done = state.created_mixed + state.deleted_mixed
    if spec.bias_create >= 0 and done != spec.transactions:
        raise RigError(
            f"postmark: {spec.transactions - done} of {spec.transactions} transactions created or deleted no file"
            f" ({spec.biases}): its table of {2 * spec.number} files was full",
            remedy="bias_create 5, or more files",
        )
    if state.created != state.deleted:
        raise RigError(f"postmark created {state.created} files and deleted {state.deleted}")


def postmark_sample(states: dict[str, PostmarkState], transactions: int, output: dict[str, str]) -> Sample:
    """Join the reports of all machines; rates add up, because the machines ran at the same time."""
    seconds = max(state.transaction_seconds for state in states.values())
    read = sum(state.read_bytes for state in states.values())
    written = sum(state.written_bytes for state in states.values())
    values = {
        # postmark truncates its own rate to a whole number: a slow array's 17.9 would be 17.
        "transactions_s": sum(transactions / state.transaction_seconds for state in states.values()),
        "read_mb_s": sum(state.read_bytes / state.total_seconds for state in states.values()) / 1e6,
        "write_mb_s": sum(state.written_bytes / state.total_seconds for state in states.values()) / 1e6,
        # The clock has whole seconds: the share of one second of the whole.
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
        """Bytes of the files that exist at a time; appends make them at most as large as the largest."""
        return self.spec.number * (self.spec.smallest + self.spec.largest) // 2

    def room(self) -> int:
        """Return the most bytes of its files; postmark does not notice a full disk."""
        most = 2 * self.spec.number if self.spec.bias_create > EVEN else self.spec.number * 3 // 2
        return most * (self.spec.largest + CLUSTER)

    def run(self, place: Place) -> Sample:
        """Run postmark to its end.

        Raises:
            RigError: postmark looped, crashed, ran out of files, or its report cannot be parsed; names the biases.
        """
        output = self.run_everywhere(place)
        states = {name: parse_postmark(text, self.spec.biases) for name, text in output.items()}
        for state in states.values():
            require_all_done(self.spec, state)
        return postmark_sample(states, self.spec.transactions, output)

    def run_on(self, machine: Machine, directory: str) -> str:
        """Run postmark on one machine, and return its report."""
        orders = postmark_orders(self.spec, directory)
        try:
            ended = run_limited(machine, postmark_command(), self.spec.limit_s, stdin=orders)
        except DeadlineExceeded as error:
            raise RigError(
                f"{machine.name}: postmark did not end in {self.spec.limit_s:g} s ({self.spec.biases})",
                remedy="it is known to loop with biases far from 5; or give a deadline_s",
            ) from error
        try:
            # Its errors, thousands of them, go to standard error; the status is 0 all the same.
            return "\n".join([require_ended_well(ended, "postmark"), *ended.stderr.splitlines()[:1]])
        except RigError as error:
            raise RigError(f"{error} ({self.spec.biases})") from error
