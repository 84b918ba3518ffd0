from pathlib import Path

import pytest

from raidproof.core.errors import RequestError
from raidproof.core.units import MIB
from raidproof.workload.fio import Fio, FioSpec, fio_in_directory, fio_job_file
from raidproof.workload.presets import jobs_of, timed_s_of, with_settings, working_set_of

CONTENT = """\
; a comment
[global]
size=8M
thread

[a]
rw=write
[global]
time_based
runtime=2s
[b]
stonewall
numjobs=2
[c]
runtime=1m
"""


def test_each_global_holds_for_what_follows() -> None:
    a, b, c = jobs_of(CONTENT)
    assert a == {"size": "8M", "thread": None, "rw": "write"}
    assert b["runtime"] == "2s"
    assert "time_based" in b
    assert c["runtime"] == "1m"


def test_working_set() -> None:
    assert working_set_of(CONTENT) == 4 * 8 * MIB
    assert working_set_of("[a]\nsize=50%\n") == 0
    assert working_set_of("[a]\nrw=read\n") == 0


def test_timed() -> None:
    assert timed_s_of(CONTENT) is None
    assert timed_s_of(CONTENT.replace("[a]", "[a]\nruntime=500ms\ntime_based")) == 60.5
    assert timed_s_of("[a]\nruntime=5\n") is None


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("[global]\nsize=1M\n", "has no job"),
        ("[a]\ndirectory=/x\n", "sets the option directory"),
        ("rw=read\n[a]\n", "fio job file cannot be parsed"),
        ("\n", "has no job"),
    ],
)
def test_what_cannot_run(content: str, why: str, tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=why):
        jobs_of(content)
    path = tmp_path / "job.fio"
    path.write_text(content)
    with pytest.raises(RequestError, match=why):
        FioSpec(job_file=str(path))
    with pytest.raises(RequestError, match=why):
        FioSpec(job_file=content)


def test_a_path_becomes_its_content(tmp_path: Path) -> None:
    path = tmp_path / "job.fio"
    path.write_text(CONTENT.rstrip())
    spec = FioSpec.model_validate({"job_file": str(path)})
    assert spec.job_file == CONTENT
    path.unlink()
    assert FioSpec.model_validate_json(spec.model_dump_json()) == spec
    assert Fio(spec).working_set == 32 * MIB


def test_a_path_that_is_not_there() -> None:
    with pytest.raises(RequestError, match=r"'nothere.fio' cannot be read: .*No such file"):
        FioSpec(job_file="nothere.fio")


def test_settings_of_the_harness_precede_those_of_the_job_file() -> None:
    content = with_settings(CONTENT, {"directory": "/mnt", "randseed": "3"})
    assert content.splitlines()[:4] == ["[global]", "directory=/mnt", "randseed=3", "; a comment"]
    assert content.endswith(CONTENT)


def test_it_is_laid_out_like_any_other() -> None:
    spec = FioSpec(job_file=CONTENT, randseed=5)
    assert fio_job_file(spec, "/mnt/x", layout=True).splitlines()[:4] == [
        "[global]", "directory=/mnt/x", "randseed=5", "create_only=1",
    ]  # fmt: skip
    assert fio_in_directory(spec, "/mnt/x")[-1].endswith(".fio")


def test_nothing_beside_it() -> None:
    with pytest.raises(RequestError, match="cannot be combined with bs, rw"):
        FioSpec(job_file=CONTENT, rw="read", bs=4096)
    with pytest.raises(RequestError, match="cannot be combined with"):
        FioSpec(job_file=CONTENT, preset="mixed")
