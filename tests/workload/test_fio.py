from pathlib import Path
from typing import Any

import pytest

from raidproof.core.command import Completed
from raidproof.core.errors import RequestError, RigError
from raidproof.core.units import KIB, MIB
from raidproof.workload.fio import Fio, FioSpec, fio_command, fio_in_directory, parse_fio, primary_of, read_ended
from raidproof.workload.presets import PRESETS
from raidproof.workload.workload import Place
from tests.workload.guest import Guest, said

DATA = Path(__file__).parents[1] / "data" / "fio"
QUICK = FioSpec(size=64 * MIB)


def told(name: str) -> str:
    return (DATA / f"fio-3.39-{name}.txt").read_text()


def answer(name: str) -> Any:
    def of(argv: tuple[str, ...]) -> Completed | None:
        return said(argv, told(name)) if "fio" in argv else None

    return of


def test_the_command_on_one_file() -> None:
    command = fio_command(FioSpec(size=256 * MIB), "/mnt/f")
    assert command[0] == "fio"
    assert {"--rw=write", f"--bs={MIB}", f"--size={256 * MIB}", "--end_fsync=1", "--filename=/mnt/f"} <= {*command}
    assert not any(word.startswith(("--runtime", "--ramp", "--directory", "--status")) for word in command)


def test_a_file_is_written_several_times_in_sequence() -> None:
    command = fio_command(FioSpec(size=MIB), "/mnt/f", times=3)
    assert [command.count(word) for word in ("fio", "--name=job", "--filename=/mnt/f", "--stonewall=1")] == [
        1,
        3,
        3,
        3,
    ]


def test_times_are_reported_in_milliseconds() -> None:
    words = fio_in_directory(FioSpec(runtime_s=2.5, ramp_s=1), "/mnt/d")
    assert {"--runtime=2500ms", "--time_based=1", "--ramp_time=1000ms", "--directory=/mnt/d"} <= {*words}
    assert "--time_based=0" in fio_in_directory(FioSpec(runtime_s=2.5, time_based=False), "/mnt/d")


def test_sizes_are_those_of_fio() -> None:
    assert FioSpec.model_validate({"bs": "4k", "size": "1g"}).bs == 4 * KIB


@pytest.mark.parametrize("name", PRESETS)
def test_each_preset_is_possible_and_survives_being_kept(name: str) -> None:
    spec = FioSpec.model_validate({"preset": name})
    assert FioSpec.model_validate_json(spec.model_dump_json()) == spec
    assert all(getattr(spec, field) == value for field, value in PRESETS[name].items())


def test_a_preset_gives_way() -> None:
    spec = FioSpec.model_validate({"preset": "iozone-random-write", "bs": "64k", "size": "4g"})
    assert (spec.rw, spec.bs, spec.direct) == ("randwrite", 64 * KIB, True)


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ({"preset": "sequental-write"}, "did you mean 'sequential-write'"),
        ({"preset": "mixed", "rw": "read"}, "preset 'mixed' has rw=randrw, but the plan sets rw=read"),
        ({"rw": "wriet"}, "did you mean 'write'"),
        ({"iodepth": 8}, "iodepth=8 has no effect"),
        ({"bs": "1M", "size": "64k"}, "is larger than a file"),
        ({"bs": "1M", "size": "8M", "nrfiles": 16}, "is larger than a file"),
        ({"time_based": True}, "set runtime_s"),
        ({"ramp_s": 1}, "set runtime_s"),
        ({"reread": True}, "reread needs"),
        ({"blocksize": "4k"}, "tool fio has no setting 'blocksize'"),
    ],
)
def test_what_cannot_be_asked(asked: dict[str, Any], why: str) -> None:
    with pytest.raises(RequestError, match=why):
        FioSpec.model_validate(asked)


@pytest.mark.parametrize(
    ("asked", "primary"),
    [
        ({}, "write_mb_s"),
        ({"rw": "read"}, "read_mb_s"),
        ({"rw": "readwrite"}, "total_mb_s"),
        ({"rw": "rw", "fsync": 1}, "total_iops"),
        ({"rw": "randread"}, "read_iops"),
        ({"rw": "randrw"}, "total_iops"),
        ({"preset": "fsync-heavy"}, "write_iops"),
        ({"job_file": "[a]\nrw=write\n"}, "write_mb_s"),
    ],
)
def test_what_it_is_about(asked: dict[str, Any], primary: str) -> None:
    assert primary_of(FioSpec.model_validate(asked), parse_fio(told("write"))) == primary


def test_a_job_file_that_does_both_is_about_both() -> None:
    assert primary_of(FioSpec(job_file="[a]\nrw=read\n"), parse_fio(told("job-file"))) == "total_mb_s"


@pytest.mark.parametrize(
    ("spec", "ended", "why"),
    [
        (FioSpec(), said(["fio"], told("write")), "67108864 bytes instead of 134217728"),
        (FioSpec(runtime_s=5), said(["fio"], told("write")), "ended after 0.897 s instead of 5 s"),
        (QUICK, said(["fio"], told("write"), "fio: odd", 1), "client1: fio ended with status 1: fio: odd"),
        (
            QUICK,
            said(["fio"], told("enospc"), told("enospc-stderr"), 1),
            "(?s)error 28.*No space left on device: write",
        ),
        (QUICK, said(["fio"], "", "fio: failed parsing rw=wriet", 1), "no report.*failed parsing"),
    ],
)
def test_what_is_no_measurement(spec: FioSpec, ended: Completed, why: str) -> None:
    with pytest.raises(RigError, match=why):
        read_ended(spec, ended)


def test_a_fio_that_did_nothing() -> None:
    text = told("write").replace('"io_bytes" : 67108864', '"io_bytes" : 0')
    with pytest.raises(RigError, match="read and wrote 0 bytes"):
        read_ended(FioSpec(job_file="[a]\nrw=trim\n"), said(["fio"], text))


def test_one_machine_writes_into_a_folder_of_its_own() -> None:
    guests = [Guest("client1", answer("write")), Guest("client2", answer("write"))]
    workload, place = Fio(QUICK), Place(guests, "/mnt")
    workload.prepare(place)
    sample = workload.run(place)
    workload.clean(place)
    assert guests[0].programs == ["rm", "mkdir", "sync", "sysctl", "fio", "rm"]
    assert not guests[1].ran
    assert sample.value == pytest.approx(67.108864 / 0.897)
    assert (sample.written_bytes, sample.read_bytes) == (64 * MIB, 0)
    assert guests[0].ran[1] == ("mkdir", "/mnt/raidproof-fio-client1")


def test_all_machines_write_at_once_with_seeds_of_their_own() -> None:
    guests = [Guest("client1", answer("write")), Guest("client2", answer("write"))]
    sample = Fio(QUICK.model_copy(update={"all_machines": True})).run(Place(guests, "/mnt"))
    assert sample.value == pytest.approx(2 * 67.108864 / 0.897)
    assert sample.output.keys() == {"client1", "client2"}
    assert [seed for guest in guests for word in guest.ran[-1] if (seed := word).startswith("--randseed")] == [
        "--randseed=1",
        "--randseed=2",
    ]


def test_what_is_read_is_laid_out_and_in_no_cache() -> None:
    guest = Guest("client1", answer("job-file"))
    workload, place = Fio(FioSpec(rw="read", size=64 * MIB)), Place([guest], "/mnt")
    workload.prepare(place)
    workload.run(place)
    assert guest.programs == ["rm", "mkdir", "fio", "sync", "sysctl", "fio"]
    assert "--create_only=1" in guest.ran[2]
    assert "--create_only=1" not in guest.ran[5]


def test_what_is_read_again_is_read_before_and_not_forgotten() -> None:
    guest = Guest("client1", answer("job-file"))
    workload, place = Fio(FioSpec(rw="read", size=64 * MIB, reread=True)), Place([guest], "/mnt")
    workload.prepare(place)
    workload.run(place)
    assert guest.programs == ["rm", "mkdir", "fio", "sync", "sysctl", "fio", "fio"]


def test_a_failed_layout_is_reported_with_its_cause() -> None:
    guest = Guest("client1", lambda argv: said(argv, told("enospc"), status=1) if "fio" in argv else None)
    with pytest.raises(RigError, match="No space left on device"):
        Fio(FioSpec(rw="read")).prepare(Place([guest], "/mnt"))


def test_a_job_file_is_put_into_the_machine() -> None:
    guest = Guest("client1", answer("job-file"))
    workload = Fio(FioSpec(job_file="[a]\nrw=write\nsize=4M\n"))
    workload.prepare(Place([guest], "/mnt"))
    sample = workload.run(Place([guest], "/mnt"))
    assert guest.programs == ["rm", "mkdir", "tee", "fio", "sync", "sysctl", "tee", "fio"]
    assert sample.primary == "total_mb_s"


def test_series_is_of_the_primary_value() -> None:
    spec = FioSpec.model_validate({"preset": "fsync-heavy", "runtime_s": 3})
    sample = Fio(spec).run(Place([Guest("client1", answer("intervals"))], "/mnt"))
    assert sample.primary == "write_iops"
    assert sample.series[1].value == pytest.approx(448)


def test_its_time_and_what_it_touches() -> None:
    assert Fio(FioSpec(runtime_s=5, ramp_s=2)).timed_s == 5
    assert Fio(FioSpec(runtime_s=5, time_based=False)).timed_s is None
    assert Fio(FioSpec(size=MIB, numjobs=3)).working_set == 3 * MIB
    assert Fio(FioSpec(job_file="[a]\nsize=2M\nruntime=4\ntime_based\n")).timed_s == 4
