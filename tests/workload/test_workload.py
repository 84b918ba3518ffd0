import pytest
from pydantic import TypeAdapter

from raidproof.core.errors import RequestError
from raidproof.workload.fio import FioSpec
from raidproof.workload.workload import WORKLOADS, Access, AnyWorkload, WorkloadSpec

_adapter: TypeAdapter[WorkloadSpec] = TypeAdapter(AnyWorkload)
TOOLS = ("bonnie", "dd", "fio", "hdparm", "metadata", "postmark", "shared_file")


def test_our_tools_are_found_in_their_folder() -> None:
    assert set(TOOLS) <= set(WORKLOADS)


@pytest.mark.parametrize("tool", TOOLS)
def test_each_tool_declares_its_programs_and_work(tool: str) -> None:
    asked = _adapter.validate_python({"tool": tool})
    assert type(asked) is WORKLOADS[tool]
    workload = asked.workload()
    assert workload.programs
    assert workload.working_set >= 0
    assert asked.work().reads or asked.work().writes
    assert asked.on_files or asked.on_devices


def test_a_plan_names_its_tool() -> None:
    assert _adapter.validate_python({"tool": "fio", "preset": "mixed"}) == FioSpec.model_validate({"preset": "mixed"})
    with pytest.raises(RequestError, match=r"no workload is named 'foi'.*fio"):
        _adapter.validate_python({"tool": "foi"})


@pytest.mark.parametrize("wrong", [{"size": 0}, {"size": 1, "span": 0.0}, {"size": 1, "sync_every": 0}])
def test_an_access_has_a_size_and_a_place(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"at least 1|more than 0"):
        Access(**wrong)  # type: ignore[arg-type]
