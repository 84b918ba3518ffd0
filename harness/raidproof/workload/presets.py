"""fio's settings by what one wants to know; each is a beginning, and what a plan says beside it takes precedence."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from raidproof.core.units import KIB, MIB

_SEQUENTIAL = {"bs": MIB}
_RANDOM = {"bs": 4 * KIB, "direct": True, "ioengine": "libaio", "iodepth": 16}
# As iozone -I: O_DIRECT, one record at a time. Like iozone, fio touches each record of a random pass once.
_RECORDS = {"bs": 128 * KIB, "direct": True, "ioengine": "psync"}

PRESETS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "sequential-write": {"rw": "write", **_SEQUENTIAL},
        "sequential-read": {"rw": "read", **_SEQUENTIAL},
        "random-read": {"rw": "randread", **_RANDOM},
        "random-write": {"rw": "randwrite", "overwrite": True, **_RANDOM},
        "mixed": {"rw": "randrw", "rwmixread": 70, "overwrite": True, **_RANDOM},
        # What a database or a mail server does: each small write is made durable before the next.
        "fsync-heavy": {"rw": "randwrite", "bs": 4 * KIB, "fsync": 1, "overwrite": True},
        "many-clients": {"rw": "write", "all_machines": True, **_SEQUENTIAL},
        "iozone-write": {"rw": "write", **_RECORDS},
        "iozone-rewrite": {"rw": "write", "overwrite": True, **_RECORDS},
        "iozone-read": {"rw": "read", **_RECORDS},
        "iozone-reread": {"rw": "read", "reread": True, **_RECORDS},
        "iozone-random-read": {"rw": "randread", **_RECORDS},
        "iozone-random-write": {"rw": "randwrite", "overwrite": True, **_RECORDS},
    }
)
"""By name. The record size is ``bs``, the file's is ``size``."""
