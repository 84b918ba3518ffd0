from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import event, example, given
from hypothesis import strategies as st

from raidproof.core.errors import RequestError
from raidproof.core.units import KIB
from raidproof.plan.axes import axes
from raidproof.plan.cell import matrix_of
from raidproof.plan.plan import Plan, load_plan, read_plan

SHIPPED = sorted((Path(__file__).resolve().parents[2] / "scenarios" / "plans").glob("*.toml"))


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        ({"axs": {}}, r"here\.toml: unknown key 'axs'; did you mean 'axes'"),
        ({"axes": {"chnk": ["64KiB"]}}, r"here\.toml: axes: unknown axis 'chnk'; did you mean 'chunk'"),
        ({"axes": {"chunk": "64KiB"}}, r"axes: chunk: write the values as a list"),
        ({"axes": {"chunk": []}}, r"axes: chunk: write the values"),
        ({"axes": {"chunk": ["64KiB", 65536]}}, r"axes: chunk: the list contains a value twice"),
        ({"axes": {"chunk": ["big"]}}, r"axes: chunk: not a size: 'big'"),
        (
            {"axes": {"level": [5, 7]}},
            r"axes: level: unknown RAID level '7'; valid: 0, .*, 6; not of md: z1, z2, z3$",
        ),
        ({"axes": {"export": ["asink"]}}, r"axes: export: value: unknown value 'asink'; did you mean 'async'"),
        ({"axes": {"threads": [True]}}, r"axes: threads: not a whole number: True"),
        ({"axes": {"aligned": [1]}}, r"axes: aligned: neither true nor false: 1"),
        ({"axes": {"rate": ["fast"]}}, r"axes: rate: not a rate"),
        ({"fixed": {"exprot": "sync"}}, r"fixed: unknown axis 'exprot'; did you mean 'export'"),
        ({"axes": {"level": [5]}, "fixed": {"level": 5}}, r"level: both under \[axes\] and under \[fixed\]"),
        (
            {"axes": {"threads": list(range(1, 102)), "nr_requests": list(range(4, 105))}},
            "10,201 combinations of values",
        ),
        ({"hardware": {"disks": {"cuont": 4}}}, r"hardware\.disks\[1\]: unknown key 'cuont'; did you mean 'count'"),
        ({"hardware": {"disks": {"count": 65}}}, r"hardware\.disks\[1\]\.count: .*64"),
        ({"hardware": {"disks": {"placement": "inner"}}}, r"disks\[1\]\.placement: unknown value 'inner'"),
        ({"hardware": {"disks": {"count": 3, "profiles": ["none", "none"]}}}, r"2 profiles for 3 disks"),
        ({"hardware": {"controller": {"bandwith": "1MB/s"}}}, r"hardware\.controller: .* did you mean 'bandwidth'"),
        ({"hardware": {"controller": {"bandwidth": 300}}}, r"hardware\.controller\.bandwidth: not a bandwidth: 300"),
        ({"hardware": {"network": {"dealy": "1ms"}}}, r"hardware\.network: .*did you mean 'delay'"),
        ({"run": {"repeats": 0}}, r"run\.repeats: "),
        ({"run": {"repaets": 5}}, r"run: unknown key 'repaets'; did you mean 'repeats'"),
        ({"run": {"cut": "pwoer"}}, r"run\.cut: .*power"),
        ({"run": {"max_seconds": "soon"}}, r"run\.max_seconds: not a duration"),
        ({"run": {"min_seconds": 9, "max_seconds": "3s"}}, r"run: min_seconds, 9 s, is more than max_seconds, 3 s"),
        ({"workload": []}, r"workload: write one or more tables"),
        ({"workload": [{"tool": "ddd"}]}, r"no workload is named 'ddd'; did you mean 'dd'"),
        ({"workload": [{}]}, r"a workload needs the key 'tool'; valid values: bonnie"),
        ({"workload": [{"tool": "dd", "name": "x"}, {"tool": "dd", "name": "x"}]}, "two workloads .*'x'"),
    ],
)
def test_an_error_is_reported_with_its_key_and_valid_words(
    read: Callable[..., Plan], document: dict[str, Any], reason: str
) -> None:
    with pytest.raises(RequestError, match=reason):
        read(**document)


def test_all_errors_are_reported_at_once(read: Callable[..., Plan]) -> None:
    with pytest.raises(RequestError) as caught:
        read({"chnk": ["64KiB"]}, run={"repeats": 0}, hardware={"clients": 0})
    assert all(key in str(caught.value) for key in ("axes", "run.repeats", "hardware.clients"))


def test_values_have_one_form(read: Callable[..., Plan]) -> None:
    plan = read(
        {"level": [5, "raid10"], "chunk": ["64KiB"], "export": ["sync", "async"], "vers": [4.2]},
        fixed={"workload": {"seconds": 3}},
        run={"min_seconds": "500ms"},
    )
    assert plan.axes == {"level": ("5", "10"), "chunk": (64 * KIB,), "export": (True, False), "vers": ("4.2",)}
    assert plan.fixed == {"workload.seconds": 3}
    assert plan.run.min_seconds == 0.5


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_shipped_plans_are_possible_as_a_whole(path: Path) -> None:
    plan = load_plan(path)
    matrix = matrix_of(plan)
    assert plan.name == path.stem
    assert not matrix.impossible
    if not plan.run.only:
        assert len(matrix.cells) == plan.combinations - matrix.merged


def test_shipped_plans_have_the_expected_number_of_cells() -> None:
    sizes = {path.stem: len(matrix_of(load_plan(path)).cells) for path in SHIPPED}
    assert sizes["tiny"] == 4
    assert sizes["raid_chunk_wsize"] == 24
    assert sizes["write_hole"] == 9


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "cannot be read: No such file"),
        (b"[axes\n", "is not a valid TOML file: .*line 1"),
        (b"a = '\xff'", "is not a valid TOML file"),
    ],
)
def test_what_is_no_plan_is_refused(tmp_path: Path, content: bytes | None, reason: str) -> None:
    path = tmp_path / "mine.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(RequestError, match=reason):
        load_plan(path)


def test_the_command_line_overrides_the_plan(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('workload = { tool = "dd" }\nrun = { repeats = 7, max_seconds = 1 }\n')
    run = load_plan(path, {"repeats": 2, "seed": 9}).run
    assert (run.repeats, run.seed, run.max_seconds) == (2, 9, 1.0)
    with pytest.raises(RequestError, match=r"run\.repeats"):
        load_plan(path, {"repeats": 0})


OWN = '[[workload]]\ntool = "command"\nrun = ["true"]\ncheck = ["true"]\nfiles = ["{}"]\n'


def test_the_files_of_an_application_are_checked_with_the_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "orders.py").write_text("pass\n")
    path = tmp_path / "mine.toml"
    path.write_text(OWN.format("orders.py"))
    assert load_plan(path).workload[0]["files"] == ["orders.py"]
    path.write_text(OWN.format("ordes.py"))
    reason = r"mine\.toml: workload\.files: file ordes\.py: No such file or directory \(did you mean 'orders\.py'\?\)$"
    with pytest.raises(RequestError, match=reason):
        load_plan(path)
    path.write_text(OWN.format("orders.py") + OWN.format("lib/zzz"))
    reason = r"workload\[2\]\.files: file lib/zzz: .* \(paths are relative to /"
    with pytest.raises(RequestError, match=reason):
        load_plan(path)


def test_a_plan_is_called_after_its_file(tmp_path: Path) -> None:
    path = tmp_path / "my plan.toml"
    path.write_text('workload = { tool = "dd" }\n')
    assert load_plan(path).name == "my-plan"


odd = st.recursive(
    st.one_of(st.booleans(), st.integers(), st.floats(), st.text(max_size=5), st.dates()),
    lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(st.text(max_size=3), inner, max_size=2)),
    max_leaves=4,
)
KEYS = [
    ("hardware",),
    ("hardware", "disks"),
    ("hardware", "disks", "size"),
    ("hardware", "disks", "profiles"),
    ("hardware", "controller"),
    ("hardware", "controller", "bandwidth"),
    ("hardware", "network"),
    ("hardware", "network", "rate"),
    ("hardware", "network", "delay"),
    ("hardware", "memory"),
    ("axes",),
    *(("axes", name) for name in sorted(axes())),
    *(("fixed", name) for name in sorted(axes())),
    ("workload",),
    ("workload", "tool"),
    ("run",),
    ("run", "min_seconds"),
    ("run", "cut"),
    ("name",),
]


@given(st.sampled_from(KEYS), odd)
@example(("hardware", "network", "delay"), 0.0)
@example(("hardware", "network", "rate"), 0.0)
@example(("hardware", "network"), {"jitter": 1.5, "rate": True})
def test_any_toml_document_is_a_plan_or_is_refused(keys: tuple[str, ...], value: object) -> None:
    document: dict[str, Any] = {"workload": {"tool": "dd"}}
    table = document
    for key in keys[:-1]:
        table = table.setdefault(key, {})
    table[keys[-1]] = value
    try:
        plan = read_plan(document, source="here.toml")
        matrix_of(plan)
    except RequestError as error:
        event(f"{keys[0]}: {str(error)[:40]}")
