import os
import subprocess
import sys
from pathlib import Path

import pytest

from raidproof.image import recipe, software

# What the kernel does where it has no memory for a packet, and then with the next one.
RECEIVE = """
import ctypes, errno, os, socket
class Part(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]
libc = ctypes.CDLL(None, use_errno=True)
theirs, ours = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
ours.setblocking(False)
def said(parts):
    got = libc.readv(ours.fileno(), (Part * len(parts))(*parts), len(parts))
    return got if got >= 0 else errno.errorcode[ctypes.get_errno()]
head, body = ctypes.create_string_buffer(2), ctypes.create_string_buffer(9)
whole = [Part(ctypes.addressof(head), 2), Part(ctypes.addressof(body), 9)]
theirs.send(b"lost" * 1000)
theirs.send(b"received")
print(said([Part(None, 32)]), said(whole), head.raw + body.raw, said([Part(None, 32)]), said(whole))
"""


def receive(library: Path | None) -> list[str]:
    environment = {**os.environ, **({"LD_PRELOAD": str(library)} if library else {})}
    ended = subprocess.run(
        [sys.executable, "-c", RECEIVE], env=environment, capture_output=True, text=True, check=True, timeout=60
    )
    assert not ended.stderr
    return ended.stdout.split()


# What an idle kernel does: it asks whether its timer is set, over and over while it is not.
ALARM = """
import ctypes, signal, sys
class Setting(ctypes.Structure):
    _fields_ = [(name, ctypes.c_long) for name in ("interval_s", "interval_ns", "s", "ns")]
libc = ctypes.CDLL(None)
alarms = []
signal.signal(signal.SIGALRM, lambda *_: alarms.append(1))
timer, left = ctypes.c_void_p(), Setting()
libc.timer_create(1, None, ctypes.byref(timer))
def ask(times):
    for _ in range(times):
        libc.timer_gettime(timer, ctypes.byref(left))
libc.timer_settime(timer, 0, ctypes.byref(Setting(s=3600)), None)
ask(1000)
set_for_long = left.s > 3000, len(alarms)
libc.timer_settime(timer, 0, ctypes.byref(Setting()), None)
ask(90)
for_a_moment = len(alarms)
if sys.argv[1] == "asks":
    while not alarms:
        ask(1)
print(*set_for_long, for_a_moment, len(alarms))
"""


def alarm(library: Path, turn: str) -> str:
    ended = subprocess.run(
        [sys.executable, "-c", ALARM, turn],
        env={**os.environ, "LD_PRELOAD": str(library)},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return ended.stdout.strip()


def test_a_lost_alarm_is_delivered_if_the_timer_is_unset(tmp_path: Path) -> None:
    path = tmp_path / "alarm.so"
    software.compile_library(recipe.VMS / "alarm.c", path)
    assert alarm(path, "asks") == "True 0 0 1"
    assert alarm(path, "goes on") == "True 0 0 0"


@pytest.fixture
def library(tmp_path: Path) -> Path:
    path = tmp_path / "receive.so"
    software.compile_library(recipe.VMS / "receive.c", path)
    return path


def test_a_packet_for_which_there_is_no_memory_is_lost_and_the_next_one_is_not(library: Path) -> None:
    lost, *others = receive(library)
    assert int(lost) > 0
    assert others == ["8", repr(b"received" + bytes(3)), "EAGAIN", "EAGAIN"]


def test_without_the_library_it_is_an_error() -> None:
    assert receive(None)[0] == "EFAULT"
