import pytest

from raidproof.core.errors import RequestError
from raidproof.existing.fstab import Entry, parse_fstab, resolved, size_in
from raidproof.existing.given import Given


def entries(text: str) -> tuple[Entry, ...]:
    return parse_fstab(Given("fstab", text))


def test_an_entry() -> None:
    (one,) = entries("# comment\n\nUUID=1 /srv\\040data/ xfs noatime,logbufs=8 0 2\n")
    assert (one.device, one.directory, one.type) == ("UUID=1", "/srv data", "xfs")
    assert (one.options, one.source) == (("noatime", "logbufs=8"), "fstab:3")
    assert one.value("logbufs") == "8"
    assert one.value("logbsize") is None


def test_an_entry_without_options() -> None:
    assert entries("/dev/md0 /srv ext4\n")[0].options == ("defaults",)


def test_the_mount_with_the_longest_path_holds_a_directory() -> None:
    mounts = entries("/dev/a / ext4\n/dev/b /srv xfs\n/dev/c none swap sw\n/dev/d /srvx xfs\n/dev/e /srv xfs\n")
    assert resolved(mounts, "/srv/x").mount == mounts[4]
    assert resolved(mounts, "/other").mount == mounts[0]
    assert resolved((), "/srv").mount is None


def test_bind_mounts_are_resolved() -> None:
    mounts = entries("/dev/md0 /pool xfs\n/pool/media /export/media none bind\n/pool/a/b /x none rbind\n")
    assert resolved(mounts, "/export/media/films") == (mounts[0], "/pool/media/films")


def test_a_circle_of_bind_mounts_is_refused() -> None:
    mounts = entries("/b /a none bind\n/a /b none bind\n")
    with pytest.raises(RequestError, match="fstab:1: the bind mount of /a refers to itself"):
        resolved(mounts, "/a/x")


@pytest.mark.parametrize(("text", "size"), [("8192", 8192), ("32k", 32768), ("1M", 1048576)])
def test_a_size(text: str, size: int) -> None:
    (one,) = entries(f"s:/a /a nfs wsize={text}\n")
    assert size_in(one, "wsize") == size
    assert size_in(one, "rsize") is None


def test_malformed_lines_are_refused() -> None:
    with pytest.raises(RequestError, match="fstab:2: not DEVICE DIRECTORY TYPE"):
        entries("/dev/a / ext4\n/dev/b /b\n")
    with pytest.raises(RequestError, match="fstab:1: wsize=lots is not a number of bytes"):
        size_in(entries("s:/a /a nfs wsize=lots\n")[0], "wsize")
