import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from raidproof.guest.keeper import store
from tests.guest.keeper.power import power_cut

NAMES = st.sampled_from(["a", "b", "c", "d/e", "d/f", "d/g/h"])
CONTENT = st.binary(max_size=20)
MODE = st.sampled_from([0o600, 0o644, 0o4755, 0o440])
ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), NAMES, CONTENT, MODE),
        st.tuples(st.just("link"), NAMES, st.sampled_from(["a", "nowhere", "/etc"])),
        st.tuples(st.just("remove"), NAMES),
        st.tuples(st.just("folder"), NAMES, st.sampled_from([0o755, 0o700])),
        st.tuples(st.just("touch"), NAMES),
    ),
    max_size=12,
)


def carry_out(root: Path, action: tuple[object, ...]) -> None:
    verb, name, *rest = action
    path = root / str(name)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if verb == "write":
            path.write_bytes(rest[0])  # type: ignore[arg-type]
            path.chmod(rest[1])  # type: ignore[arg-type]
        elif verb == "link":
            path.symlink_to(str(rest[0]))
        elif verb == "folder":
            path.mkdir(mode=rest[0])  # type: ignore[arg-type]
        elif verb == "touch":
            os.utime(path, ns=(1, 10**18 + 1), follow_symlinks=False)
        elif path.is_dir() and not path.is_symlink():
            path.rmdir()
        else:
            path.unlink()
    except OSError:
        pass  # not possible here


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(before=ACTIONS, after=ACTIONS)
def test_whatever_happened_is_undone(
    tmp_path_factory: pytest.TempPathFactory, before: list[tuple[object, ...]], after: list[tuple[object, ...]]
) -> None:
    root = tmp_path_factory.mktemp("tree") / "root"
    root.mkdir()
    for action in before:
        carry_out(root, action)
    saved = store.save([str(root)])
    for action in after:
        carry_out(root, action)
    store.restore(saved, [str(root)])
    found = store.save([str(root)])
    assert store.differences(saved, found) == []
    # A second time there is nothing to do.
    assert store.restore(saved, [str(root)]) == {}


@pytest.mark.parametrize("step", range(8))
def test_power_may_go_in_the_middle_and_it_is_just_repeated(step: int, tmp_path: Path) -> None:
    root = tmp_path / "etc"
    (root / "exports.d").mkdir(parents=True)
    for name in ("fstab", "exports", "exports.d/own"):
        (root / name).write_text(f"{name}\n")
    saved = store.save([str(root)])
    for name in ("fstab", "exports", "exports.d/own", "exports.d/ours"):
        (root / name).write_text("ours\n")
    with power_cut(step):
        store.restore(saved, [str(root)])
    store.restore(saved, [str(root)])
    assert store.differences(saved, store.save([str(root)])) == []


def test_new_files_are_removed_and_missing_files_restored(tmp_path: Path) -> None:
    gone, new = tmp_path / "mdadm.conf", tmp_path / "exports.d"
    gone.write_text("ARRAY\n")
    roots = [str(gone), str(new)]
    saved = store.save(roots)
    gone.unlink()
    new.mkdir()
    (new / "ours.exports").write_text("/srv\n")
    replaced = store.restore(saved, roots)
    assert gone.read_text() == "ARRAY\n"
    assert not new.exists()
    assert set(replaced) == {str(new), str(new / "ours.exports")}


def test_owner_and_time_are_put_back(tmp_path: Path) -> None:
    file = tmp_path / "exports"
    file.write_text("")
    os.utime(file, ns=(1, 1234567890123456789))
    saved = store.save([str(file)])
    file.write_text("/srv\n")
    store.restore(saved, [str(file)])
    assert file.stat().st_mtime_ns == 1234567890123456789
    if os.geteuid() == 0:
        os.chown(file, 7, 8)
        store.restore(saved, [str(file)])
        assert (file.stat().st_uid, file.stat().st_gid) == (os.getuid(), os.getgid())


def test_what_is_skipped_is_neither_saved_nor_removed(tmp_path: Path) -> None:
    live = tmp_path / "sm"
    live.mkdir()
    saved = store.save([str(tmp_path)], [str(live)])
    assert str(live) not in saved
    (live / "10.0.0.7").write_text("")
    store.restore(saved, [str(tmp_path)], [str(live)])
    assert (live / "10.0.0.7").exists()


def test_a_difference_is_named(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1")
    (tmp_path / "b").write_text("1")
    saved = store.save([str(tmp_path / "a"), str(tmp_path / "b"), str(tmp_path / "c")])
    (tmp_path / "a").write_text("2")
    (tmp_path / "b").unlink()
    (tmp_path / "c").write_text("3")
    said = store.differences(saved, store.save([str(tmp_path / name) for name in "abc"]))
    assert [line.removeprefix(f"{tmp_path}/") for line in said] == [
        said[0].removeprefix(f"{tmp_path}/"),
        "b is missing",
        "c is new",
    ]
    assert said[0].startswith(f"{tmp_path}/a differs in content")


def test_a_file_too_large_for_a_configuration_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "LARGEST", 3)
    (tmp_path / "a").write_text("1234")
    with pytest.raises(ValueError, match="the limit is"):
        store.save([str(tmp_path)])
