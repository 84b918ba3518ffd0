import pytest
from pydantic import ValidationError

from raidproof.record.lesson import LessonRecord, ValueRecord
from tests.teach.measured import cut, new_record


def test_a_value_of_several_repetitions_is_their_median() -> None:
    assert ValueRecord(name="x", meaning="x", each=[1.0, 9.0, 2.0]).middle == 2.0
    with pytest.raises(ValidationError):
        ValueRecord(name="x", meaning="x", each=[])


def test_an_action_has_its_values_by_name() -> None:
    action = cut("a", [1], [0.5])
    found = action.value("lost")
    assert found is not None
    assert found.each == [1.0]
    assert action.value("flushes") is None


def test_an_unknown_field_is_refused() -> None:
    document = new_record().model_dump(mode="json") | {"mark": "A"}
    with pytest.raises(ValidationError):
        LessonRecord.model_validate(document)
