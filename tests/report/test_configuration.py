import pytest

from raidproof.record.run import RunRecord
from raidproof.report.configuration import NOT_ASKED, Case, Setting, caveats, configuration, same
from raidproof.report.words import UNKNOWN


def setting(layers: dict[str, list[Setting]], layer: str, field: str) -> list[Case]:
    return next(one.cases for one in layers[layer] if one.field == field)


def test_what_is_as_asked_stands_once_for_all_cycles(run: RunRecord) -> None:
    layers = configuration(run.cycles)
    assert setting(layers, "array", "chunk_size") == [Case("", "64KiB", "64KiB", differs=False)]
    assert setting(layers, "filesystem", "sw") == [Case("", "3", "3", differs=False)]


def test_a_difference_is_found_on_each_client(run: RunRecord) -> None:
    layers = configuration(run.cycles)
    for client in ("client1", "client2"):
        assert setting(layers, f"mount on {client}", "wsize") == [Case("", "4MiB", "1MiB", differs=True)]


def test_cycles_that_differ_stand_with_their_numbers(run: RunRecord) -> None:
    assert setting(configuration(run.cycles), "export", "sync") == [
        Case("1, 3, 4", "yes", "yes", differs=False),
        Case("2", "no", "no", differs=False),
    ]


def test_options_are_read_as_exports_writes_them(run: RunRecord) -> None:
    layers = configuration(run.cycles)
    assert setting(layers, "export", "wdelay") == [Case("", "no", "no", differs=False)]
    run.cycles[0].effective["export"]["options"] = ["async", "wdelay"]
    assert setting(configuration(run.cycles[:1]), "export", "sync") == [Case("", "yes", "no", differs=True)]
    assert setting(configuration(run.cycles[:1]), "export", "wdelay") == [Case("", "no", "yes", differs=True)]


@pytest.mark.parametrize(
    ("asked", "found", "alike"),
    [
        ("disk4", "/dev/disk/by-id/raidproof-disk4", True),
        ("disk4", "/dev/disk/by-id/raidproof-disk5", False),
        ("none", None, True),
        ("internal", None, False),
        (4, "4", True),
        (4, 5, False),
    ],
)
def test_what_counts_as_found(asked: object, found: object, alike: bool) -> None:
    assert same(asked, found) is alike


def test_caveats_stand_with_their_cycles(run: RunRecord) -> None:
    run.cycles[1].effective["caveats"] = ["another"]
    assert caveats(run.cycles) == {"grace and lease are 10 s, not the default 90 s": [1, 3, 4], "another": [2]}


def test_not_asked_and_not_found_are_told_apart(broken_run: RunRecord) -> None:
    layers = configuration(broken_run.cycles)
    assert setting(layers, "array", "bitmap") == [
        Case("2, 3, 4", NOT_ASKED, "internal", differs=False),
    ]
    assert setting(layers, "filesystem", "log")[0].asked == NOT_ASKED
    assert Case("1", "xfs", UNKNOWN, differs=False) in setting(layers, "filesystem", "type")


def test_fields_stand_in_the_order_of_the_record(run: RunRecord) -> None:
    fields = [setting.field for setting in configuration(run.cycles)["array"]]
    assert fields == [
        "level",
        "members",
        "chunk_size",
        "bitmap",
        "devices.0.device",
        *(f"devices.0.members.{place}.device" for place in range(4)),
    ]
