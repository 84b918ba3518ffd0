from typing import Any, get_args

import pytest
from pydantic import TypeAdapter, ValidationError

from raidproof.workload import tools
from raidproof.workload.fio import FioSpec
from raidproof.workload.tools import WorkloadSpec, workload_of

_adapter: TypeAdapter[WorkloadSpec] = TypeAdapter(WorkloadSpec)
SPECS = get_args(get_args(WorkloadSpec)[0])


@pytest.mark.parametrize("spec", SPECS)
def test_each_tool_has_its_row(spec: type[Any]) -> None:
    asked = _adapter.validate_python({"tool": spec.model_fields["tool"].default})
    assert type(asked) is spec
    workload = workload_of(asked)
    assert workload.programs
    assert workload.working_set >= 0


def test_no_row_without_a_word() -> None:
    assert set(tools._WORKLOADS) == set(SPECS)


def test_a_plan_names_its_tool() -> None:
    assert _adapter.validate_python({"tool": "fio", "preset": "mixed"}) == FioSpec.model_validate({"preset": "mixed"})
    with pytest.raises(ValidationError, match="fio"):
        _adapter.validate_python({"tool": "foi"})
