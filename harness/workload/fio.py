"""fio: sequential and other throughput as a client sees it, from fio's own JSON."""

import json

from pydantic import BaseModel, ConfigDict, ValidationError

from harness.errors import RigError
from harness.units import MIB, Size


class FioSpec(BaseModel):
    """One fio job, in fio(1)'s own words."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    rw: str = "write"
    bs: Size = MIB
    size: Size = 128 * MIB
    end_fsync: bool = True
    """Make the data durable inside the timed region; without it a write measures the client's page cache."""


class FioResult(BaseModel):
    """What fio measured."""

    model_config = ConfigDict(frozen=True)

    bytes: int
    milliseconds: int
    fio_version: str

    @property
    def mb_per_s(self) -> float:
        """Megabytes (10^6 bytes) a second, the fsync included."""
        return self.bytes / 1e3 / self.milliseconds if self.milliseconds else 0.0


def fio_command(spec: FioSpec, path: str) -> list[str]:
    """Return the command that writes one file."""
    return [
        "fio", "--name=job", f"--filename={path}", f"--rw={spec.rw}", f"--bs={spec.bs}", f"--size={spec.size}",
        f"--end_fsync={int(spec.end_fsync)}", "--ioengine=psync", "--thread", "--fallocate=none",
        "--invalidate=0", "--output-format=json",
    ]  # fmt: skip


def parse_fio(text: str) -> FioResult:
    """Read fio's JSON.

    Raises:
        RigError: it is truncated, or a job failed.
    """
    # fio prefixes its JSON with plain lines when it has something to warn of.
    try:
        report = json.loads(text[text.index("{") :])
        job = report["jobs"][0]
        if job["error"]:
            raise RigError(f"fio reports error {job['error']}")
        return FioResult(
            bytes=job["write"]["io_bytes"] + job["read"]["io_bytes"],
            milliseconds=job["job_runtime"],
            fio_version=report["fio version"],
        )
    except (ValueError, KeyError, IndexError, ValidationError) as error:
        raise RigError(f"fio's report cannot be read: {error!r}; it begins {text[:200]!r}") from error
