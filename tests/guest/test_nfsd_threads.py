"""The restart of nfsd's threads between two checks; nfsd's files are made up."""

import errno
import os
import socket
from pathlib import Path

import pytest

from raidproof.guest import nfsd_threads
from raidproof.guest.nfsd_threads import NfsdThreads, tcp_ports

PORTLIST = "rdma 20049\ntcp 2049\nudp 2049\ntcp 2049\n"
"""Two TCP sockets with the same port: one of IPv4 and one of IPv6."""


class Made(NfsdThreads):
    """The restarts of an nfsd whose files are entries of a dictionary."""

    def __init__(self, folder: Path, *, keeps: str = "", runs: str = "", in_grace: int = 0) -> None:
        """``keeps``: threads that do not end. ``runs``: threads that start. ``in_grace``: reads until grace ends."""
        self.lockd_grace = folder / "nlm_end_grace"
        super().__init__("/nowhere", str(self.lockd_grace), "127.0.0.1")
        self.files = {"threads": "8", "portlist": "", "v4_end_grace": "N"}
        self.keeps, self.runs, self.in_grace = keeps, runs, in_grace
        self.written: list[tuple[str, str]] = []
        self.listening: list[int] = []
        self.refuses = False

    def _read(self, name: str) -> str:
        if name == "v4_end_grace":
            self.in_grace -= 1
            return "N" if self.in_grace >= 0 else "Y"
        return self.files[name]

    def _write(self, name: str, text: str) -> None:
        self.written.append((name, text))
        if name == "v4_end_grace" and self.refuses:
            raise OSError(errno.EBUSY, "busy")
        if name == "portlist":
            with socket.fromfd(int(text), socket.AF_INET, socket.SOCK_STREAM) as given:
                assert given.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
                self.listening.append(given.getsockname()[1])
        if name == "threads":
            self.files[name] = (self.keeps or text) if text == "0" else self.runs or text


@pytest.fixture
def port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


def test_all_threads_end_and_start_again_on_the_same_port(tmp_path: Path, port: int) -> None:
    made = Made(tmp_path)
    made.files["portlist"] = f"tcp {port}\ntcp {port}\n"
    for _ in range(2):
        made.release()
        made.serve()
    assert [one for one in made.written if one[0] == "threads"] == [("threads", "0"), ("threads", "8")] * 2
    assert made.listening == [port, port]
    assert not made.lockd_grace.exists(), "a kernel without lockd has no such file"


def test_nothing_waits_for_an_nfsd_that_runs_since_the_boot(tmp_path: Path) -> None:
    made = Made(tmp_path)
    made.serve()
    assert made.written == []


def test_threads_that_do_not_end_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="nfsd still has 3 threads"):
        Made(tmp_path, keeps="3").release()


def test_threads_that_do_not_start_are_an_error_of_the_next_check(tmp_path: Path) -> None:
    made = Made(tmp_path, runs="2")
    made.release()
    for _ in range(2):
        with pytest.raises(OSError, match="nfsd has 2 threads instead of 8"):
            made.serve()
    with pytest.raises(OSError, match="instead of 8"):
        made.release()


@pytest.mark.parametrize("refuses", [False, True])
def test_both_grace_periods_are_ended(tmp_path: Path, refuses: bool) -> None:
    made = Made(tmp_path, in_grace=2)
    made.refuses = refuses
    made.lockd_grace.touch()
    made.release()
    made.serve()
    assert made.written[-2:] == [("v4_end_grace", "Y")] * 2
    assert made.lockd_grace.read_text() == "Y\n"


def test_a_grace_period_that_does_not_end_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nfsd_threads, "GRACE_ENDS_S", 0.0)
    made = Made(tmp_path, in_grace=1 << 30)
    made.release()
    with pytest.raises(TimeoutError, match="grace period did not end"):
        made.serve()


def test_files_of_nfsd(tmp_path: Path) -> None:
    for name, text in (("threads", "8\n"), ("portlist", "\n"), ("v4_end_grace", "Y\n")):
        (tmp_path / name).write_text(text)
    threads = NfsdThreads(str(tmp_path), os.devnull)
    threads.release()
    threads.serve()
    assert (tmp_path / "threads").read_text() == "8\n"


def test_tcp_ports() -> None:
    assert tcp_ports(PORTLIST) == [2049]
    assert tcp_ports("") == []
