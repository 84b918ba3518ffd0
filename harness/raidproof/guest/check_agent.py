# No pathlib, no subprocess: on the minimal Python of a guest each import takes time.
"""Agent of a checker: it assembles the array, mounts the file system, reads the ledger, unmounts, and stops the array.

On request the agent also mounts the export of the machine's own NFS server, and reads the ledger again, by NFS.

The harness copies this file into machines, into the folder of ledger_reader.py. It runs there on a minimal Python:
standard library only. Run as ``check_agent.py CONFIG``, where CONFIG is a JSON file. The agent connects to the
harness and reads one JSON object per line: ``{"verb": NAME, ARGUMENT: VALUE, ...}``. It answers with lines of JSON: a
line with ``stage`` when a stage begins, of which the harness records the time, and a last line with ``answer``. If the
machine hangs, the last ``stage`` line names the stage in which it hangs. The requests ``advance`` and ``show`` have
raw bytes after their line: the content of the runs of blocks that the line lists.

In a guest, a process start takes 7 to 20 ms and a system call 20 us: the agent uses few processes and system calls.
"""

import json
import os
import select
import socket
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from time import monotonic
from typing import Any, Protocol

READ, NOT_ASSEMBLED, NOT_MOUNTED = "read", "not-assembled", "not-mounted"
"""The values of ``end`` in an answer: ledger read, an array not assembled, or the file system not mounted."""
SAME, DIFFERENT = "same", "different"
"""The values of ``through_nfsd`` in an answer: whether the ledger read by NFS equals the ledger read directly."""
PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
HELPERS = {"/proc/sys/kernel/modprobe": "/sbin/modprobe", "/sys/kernel/uevent_helper": ""}
"""Files with the programs that the kernel starts to load a module and to report a device, and their content."""
BUFFER = 1 << 20
"""Bytes that are received from the harness at once."""
SCRUB_S = 15.0
"""Time limit in seconds of a resync, and of a comparison of copies or parity with the data."""
POLL_S = 0.02
"""Interval in seconds at which the agent reads the state of an array while it waits for the end of a resync."""
LONGEST = 4000
"""Maximum length of a command's output in an answer: half of the characters are its first, half its last ones."""

Run = Callable[[list[str]], tuple[int, str]]
"""Runs a command; returns its status and its output."""
Begun = Callable[[str], None]
"""Reports the name of a stage that begins."""
Scan = Callable[[str], dict[str, Any]]
"""Reads the ledger below a directory, as `ledger_reader.LedgerReader.read`."""
Calls = Mapping[str, Callable[[Sequence[str]], None]]


class StateServer(Protocol):
    """The machine's NFS server, as `nfsd_threads.NfsdThreads` and `server_process.ServerProcess`."""

    def serve(self) -> str:
        """Wait until the server serves the mounted file system; return why it does not, or an empty text."""

    def release(self) -> None:
        """Make the server release all file systems at once; it may serve again later."""


class Runner:
    """Runs commands by posix_spawn(3). Their output goes to a memory file, which is read only if it is not empty.

    ``calls``: functions by the name of the command that they replace, such as `storage_calls.CALLS`. If a function
    raises, the command runs, and the kernel may load modules for it.
    """

    def __init__(self, path: str = PATH, calls: Calls | None = None) -> None:
        self._calls = calls or {}
        self._folders = path.split(":")
        self._programs: dict[str, str] = {}
        self._environment = {"PATH": path, "LC_ALL": "C"}
        self._output = os.memfd_create("output")
        null = os.open("/dev/null", os.O_RDONLY)
        # In append mode, because several processes of a command may write to the file.
        writer = os.open(f"/proc/self/fd/{self._output}", os.O_WRONLY | os.O_APPEND)
        self._files = [(os.POSIX_SPAWN_DUP2, null, 0), *((os.POSIX_SPAWN_DUP2, writer, fd) for fd in (1, 2))]

    def run(self, argv: list[str]) -> tuple[int, str]:
        """Run a command; return its status (minus the number of a signal), and its output, shortened to `LONGEST`."""
        if argv[0] in self._calls:
            try:
                self._calls[argv[0]](argv[1:])
            except Exception:  # noqa: BLE001  whatever went wrong, the command does it again and reports it
                set_helpers(HELPERS)
            else:
                return 0, ""
        try:
            pid = os.posix_spawn(self._program(argv[0]), argv, self._environment, file_actions=self._files)
        except OSError as error:
            return 127, error.strerror or ""
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        return status, self._take_output()

    def _take_output(self) -> str:
        size = os.fstat(self._output).st_size
        if not size:
            return ""
        text = os.pread(self._output, size, 0).decode(errors="replace").strip()
        os.ftruncate(self._output, 0)
        return text if len(text) <= LONGEST else f"{text[: LONGEST // 2]}\n...\n{text[-LONGEST // 2 :]}"

    def _program(self, name: str) -> str:
        if name not in self._programs:
            paths = [os.path.join(folder, name) for folder in self._folders]
            self._programs[name] = next((path for path in paths if os.access(path, os.X_OK)), name)
        return self._programs[name]


class CheckAgent:
    """Carries out the stages of checks, one check after the other.

    ``config``: the commands of the stages, as lists of words, and the configuration of the ledger reader.
    ``devices``: the array's devices (`raidproof.guest.assembled`), in the order of their assembly.
    ``server``: the NFS server; None if states are not read through it.
    ``errors``: returns the kernel's messages of level err or worse since its last call.
    """

    def __init__(
        self,
        config: dict[str, Any],
        devices: Sequence[Any],
        run: Run,
        begun: Begun,
        scan: Scan,
        server: StateServer | None,
        errors: Callable[[], list[str]],
    ) -> None:
        self.config = config
        self.devices = devices
        self.run = run
        self.begun = begun
        self.scan = scan
        self.server = server
        self.errors = errors
        self.mounted = False
        self.left = ""
        """The failed umount command for the NFS mount, with its output; empty if the NFS mount does not remain."""

    def check(self, *, nfsd: bool = False, fsck: bool = False) -> dict[str, Any]:
        """Carry out all stages: `up`, then a second read of the ledger by NFS if ``nfsd`` is set, then `down`."""
        answer = self.up()
        if nfsd and self.server and answer["end"] == READ:
            answer.update(self.through_server(self.server, answer["found"]))
        return {**answer, **self.down(fsck=fsck)}

    def up(self) -> dict[str, Any]:
        """Assemble the arrays, mount the file system and read the ledger; end after the first stage that fails."""
        return self._up(lambda device: device.freeze(), lambda: None)

    def recover(self, *, resync_first_s: float, most_s: float) -> dict[str, Any]:
        """Assemble the arrays, mount the file system and read the ledger, while md resyncs; wait for its end.

        ``resync_first_s``: greatest number of seconds of the resync before the mount; 0: md decides when the resync
        begins, with md_mod.start_ro=1 at the first write. ``most_s``: greatest number of seconds to wait for its end
        after the mount. ``settled`` in the answer: whether all arrays are in sync and clean. Nothing is unmounted or
        stopped.
        """

        def resync_first() -> None:
            if resync_first_s:
                self.begun("resync")
                for device in self.devices:
                    device.write_enable()
                self._settled(resync_first_s)

        answer = self._up(lambda _: None, resync_first)
        if answer["end"] != READ:
            return {**answer, "left": "", "settled": False, "errors": self.errors()}
        self.begun("settle")
        settled = self._settled(most_s)
        return {**answer, "left": "", "settled": settled, "errors": self.errors()}

    def _settled(self, most_s: float) -> bool:
        """Wait until all arrays are in sync and clean, at most ``most_s`` seconds; return whether they are."""
        end = monotonic() + most_s
        while not all(device.settled() for device in self.devices):
            if monotonic() >= end:
                return False
            select.select([], [], [], POLL_S)
        return True

    def _up(self, assembled: Callable[[Any], None], before_mount: Callable[[], None]) -> dict[str, Any]:
        """Carry out `up`; ``assembled`` gets each device of the array after its assembly."""
        self.begun("assemble")
        refused, problem = "", self._assemble(assembled)
        if problem and self.config["permitting"]:
            refused, problem = problem, self._permitted(assembled)
            if problem:
                refused = ""  # it was no refusal: the array does not start in any case
        if problem:
            return {"end": NOT_ASSEMBLED, "said": problem, "found": None}
        before_mount()
        counted = {one["device"]: device.missing() for one, device in self._assembled()}
        missing = {path: count for path, count in counted.items() if count}
        seen: dict[str, Any] = {"degraded": missing} if missing else {}
        if refused:
            seen["refused"] = refused
        self.begun("mount")
        if problem := self._failure(self.config["mount"]):
            return {"end": NOT_MOUNTED, "said": problem, "found": None, **seen}
        self.mounted = True
        self.begun("verify")
        return {"end": READ, "said": "", "found": self.scan(self.config["ledger"]["root"]), **seen}

    def _assemble(self, assembled: Callable[[Any], None]) -> str:
        """Assemble the devices of the array, in their order; return what failed, or an empty text."""
        for one, device in self._assembled():
            if problem := self._failure(command_of(one)):
                return problem
            assembled(device)
        return ""

    def _permitted(self, assembled: Callable[[Any], None]) -> str:
        """Assemble the array, which was refused, while the kernel is permitted to start it; return what failed."""
        for command in self.config["stop"]:
            self.run(command)
        before = [(path, read_text(path)) for path, _ in self.config["permitting"]]
        write_texts(self.config["permitting"])
        try:
            return self._assemble(assembled)
        finally:
            write_texts(before)

    def scan_below(self, root: str) -> dict[str, Any]:
        """Read the ledger below the directory ``root``; the request and its stage have the name ``look``."""
        self.begun("look")
        return {"found": self.scan(root)}

    def through_server(self, server: StateServer, direct: dict[str, Any]) -> dict[str, Any]:
        """Mount the file system by NFS, read the ledger there, and compare the result with the direct read."""
        config = self.config["nfsd"]
        self.begun("nfsd")
        problem = server.serve() or next(filter(None, map(self._failure, config["mount"])), "")
        if not problem:
            differ = differing(direct, self.scan_below(config["root"])["found"])
            problem = ", ".join(differ)
            self.begun("leave")
            self.left = self._failure(config["unmount"])
        self.begun("forget")
        server.release()
        if problem:
            return {"through_nfsd": DIFFERENT, "said": f"through the NFS server: {problem}"}
        return {"through_nfsd": SAME}

    def down(self, *, fsck: bool = False) -> dict[str, Any]:
        """Unmount the file system, run its checker (such as xfs_repair -n) if ``fsck`` is set, and stop the arrays.

        ``left`` in the answer is the failed command after which a mount or an array remains; empty if none remains.
        ``errors``: the kernel's messages of level err or worse since the last check.
        """
        left, self.left = self.left, ""
        answer: dict[str, Any] = {}
        if self.mounted:
            self.begun("unmount")
            left = left or self._unmount()
            self.mounted = False
            if fsck and not left:
                self.begun("fsck")
                answer["fsck"] = self.run(self.config["fsck"])
                answer.update(self._scrub())
        self.begun("stop")
        # After a failed assembly, a part of the array may exist and must be stopped. The command fails if none exists.
        problem = "; ".join(filter(None, map(self._failure, self.config["stop"])))
        if problem:
            left = left or (problem if any(device.remains() for device in self.devices) else "")
        return {**answer, "left": left, "errors": self.errors()}

    def _scrub(self) -> dict[str, Any]:
        """Let the arrays resync, and compare copies or parity with the data, if ``scrub`` is set in the config."""
        if not self.config["scrub"]:
            return {}
        self.begun("scrub")
        counted = {one["device"]: device.scrub(SCRUB_S) for one, device in self._assembled()}
        return {"scrubbed": {path: count for path, count in counted.items() if count is not None}}

    def _assembled(self) -> Iterator[tuple[dict[str, Any], Any]]:
        """Iterate over the steps of the assembly, each with its device."""
        return zip(self.config["assemble"], self.devices, strict=True)

    def _unmount(self) -> str:
        problem = self._failure(self.config["unmount"])
        if problem and self.server:
            self.server.release()
            problem = self._failure(self.config["unmount"])
        return problem

    def _failure(self, argv: list[str]) -> str:
        """Run a command; return its status and output if it failed, else an empty text."""
        status, output = self.run(argv)
        return f"{' '.join(argv)}: status {status}: {output}" if status else ""


def command_of(one: dict[str, Any]) -> list[str]:
    """Return the command of an assembly, with the size of its device if the size follows from another device."""
    command: list[str] = one["command"]
    if not (path := one.get("sized")):
        return command
    assembled = import_module("assembled")
    try:
        sectors = assembled.sectors_of(path)
    except OSError:
        return command  # the command fails, and its output names the word that is no number
    found: list[str] = assembled.sized(command, sectors)
    return found


def differing(direct: dict[str, Any], seen: dict[str, Any]) -> list[str]:
    """Return the keys of the workers whose files differ between the direct read and the read by NFS."""
    return sorted(key for key in direct if direct[key] != seen.get(key))


def read_text(path: str) -> str:
    """Return the content of a file."""
    with open(path) as file:
        return file.read()


def write_texts(texts: Sequence[Sequence[str]]) -> None:
    """Write texts to files; ``texts``: pairs of path and text."""
    for path, text in texts:
        with open(path, "w") as file:
            file.write(text)


def set_helpers(helpers: Mapping[str, str]) -> None:
    """Set the programs that the kernel starts; an empty text: none. A kernel need not have all of these files."""
    for path, program in helpers.items():
        if os.path.exists(path):
            with open(path, "w") as file:
                file.write(program + "\n")


def devices_of(config: dict[str, Any]) -> list[Any]:
    """Return the devices of the array, in the order of their assembly."""
    interfaces = import_module("assembled").INTERFACES
    return [interfaces[one["interface"]](one["name"]) for one in config["assemble"]]


def members_of(config: dict[str, Any]) -> Any:
    """Return the members in the machine's memory, or None if the machine has disks."""
    members = config["members"]
    return import_module("member_disks").MemberDisks(members["sizes"], members["links"]) if members else None


def server_of(config: dict[str, Any]) -> Any:
    """Return the NFS server through which states are read, or None if the config has none."""
    if "nfsd" not in config:
        return None
    service = config["nfsd"]["service"]
    return import_module(service["module"]).SERVICE(**service["arguments"])


def filling(stream: Any) -> Callable[[memoryview], int]:
    """Return a function that fills a buffer with the next bytes of a stream."""

    def fill(buffer: memoryview) -> int:
        if not (count := stream.readinto(buffer)):
            raise EOFError("the harness closed the connection within a request")
        return int(count)

    return fill


def serve(config: dict[str, Any]) -> None:
    """Answer requests of the harness until the harness closes the connection."""
    members = members_of(config)
    write_texts(config["parameters"])
    connection = socket.create_connection((config["host"], config["port"]))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(message: dict[str, Any]) -> None:
        connection.sendall(json.dumps(message, separators=(",", ":")).encode() + b"\n")

    calls = import_module("storage_calls").CALLS if members else None
    agent = CheckAgent(
        config,
        devices_of(config),
        Runner(calls=calls).run,
        lambda stage: send({"stage": stage}),
        import_module("ledger_reader").LedgerReader(config["ledger"]).read,
        server_of(config),
        import_module("kernel_messages").KernelMessages().errors,
    )
    verbs: dict[str, Callable[..., dict[str, Any]]] = {
        "check": agent.check,
        "recover": agent.recover,
        "up": agent.up,
        "look": agent.scan_below,
        "down": agent.down,
    }
    stream = connection.makefile("rb", BUFFER)
    fill = filling(stream)
    while line := stream.readline():
        request = json.loads(line)
        verb = request.pop("verb")
        if verb in ("advance", "show"):
            (members.advance if verb == "advance" else members.show)(request["runs"], fill)
            send({"answer": {}})
            continue
        answer = verbs[verb](**request)
        if members:
            members.require_valid()
            # The modules of array and file system are loaded. md would look for others in vain at each assembly. The
            # first NFS mount fails without the modules of the NFS client: `Runner.run` then runs the command.
            set_helpers(dict.fromkeys(HELPERS, "") if answer.get("end") == READ else HELPERS)
        send({"answer": answer})


if __name__ == "__main__":
    with open(sys.argv[1]) as config_file:
        serve(json.load(config_file))
