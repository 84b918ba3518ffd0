"""The records of /dev/kmsg, of which only the kernel's errors count."""

import os
from collections.abc import Iterator

import pytest

from raidproof.guest import kernel_messages
from raidproof.guest.kernel_messages import KernelMessages, error_in

INFO = b"6,67648,67532489346,-;lab: port 1(tap-server) entered disabled state\n"
ERROR = b"3,412,9120394,-;XFS (md0): Failed to recover intents\n SUBSYSTEM=block\n DEVICE=b9:0\n"
CRITICAL = b"2,413,9120395,-;EXT4-fs error (device md0): ext4_lookup:1855: inode #2: deleted inode referenced: 12\n"
BY_A_PROCESS = b"11,414,9120396,-;nfsdcld[311]: Failed to open /run/rpc_pipefs\n"
"""A process wrote it with level err: facility 1, level 3."""


@pytest.mark.parametrize(
    ("record", "text"),
    [
        (INFO, ""),
        (ERROR, "XFS (md0): Failed to recover intents"),
        (CRITICAL, "EXT4-fs error (device md0): ext4_lookup:1855: inode #2: deleted inode referenced: 12"),
        (BY_A_PROCESS, ""),
        (b"4,415,9120397,c;a warning; with a semicolon\n", ""),
        (b"3,416,9120398,c;an error; with a semicolon\n", "an error; with a semicolon"),
    ],
)
def test_only_the_kernels_errors_count(record: bytes, text: str) -> None:
    assert error_in(record) == text


@pytest.fixture
def ring() -> Iterator[tuple[str, int]]:
    """A pipe in packet mode in place of /dev/kmsg, of which each read(2) returns one record: its path, its writer."""
    reader, writer = os.pipe2(os.O_DIRECT | os.O_NONBLOCK)
    yield f"/proc/self/fd/{reader}", writer
    os.close(reader)
    os.close(writer)


def test_each_message_is_returned_once(ring: tuple[str, int]) -> None:
    path, writer = ring
    os.write(writer, ERROR)  # at the boot
    messages = KernelMessages(path)
    assert messages.errors() == []
    for record in (INFO, ERROR, BY_A_PROCESS, CRITICAL):
        os.write(writer, record)
    assert messages.errors() == [error_in(ERROR), error_in(CRITICAL)]
    assert messages.errors() == []


def test_records_that_the_kernel_has_overwritten_are_skipped(
    ring: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, writer = ring
    messages = KernelMessages(path)
    real, overwritten = os.read, [True]

    def read(fd: int, size: int) -> bytes:
        if overwritten:
            overwritten.pop()
            raise BrokenPipeError
        return real(fd, size)

    monkeypatch.setattr(os, "read", read)
    os.write(writer, ERROR)
    assert messages.errors() == [error_in(ERROR)]


def test_a_flood_of_messages_is_bounded(ring: tuple[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    path, writer = ring
    messages = KernelMessages(path)
    monkeypatch.setattr(kernel_messages, "MOST_MESSAGES", 3)
    for _ in range(5):
        os.write(writer, ERROR)
    assert len(messages.errors()) == 3
    assert messages.errors() == []
