"""A power cut between two calls of fsync."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from unittest import mock


class PowerLost(Exception):
    """Ends a program at the power cut."""


@contextmanager
def power_cut(step: int) -> Iterator[list[int]]:
    """End the body before its fsync number ``step`` (from 0); yield a list of the descriptors that fsync has had."""
    synced: list[int] = []
    fsync = os.fsync

    def counted(descriptor: int) -> None:
        if len(synced) == step:
            raise PowerLost
        synced.append(descriptor)
        fsync(descriptor)

    with suppress(PowerLost), mock.patch.object(os, "fsync", counted):
        yield synced
