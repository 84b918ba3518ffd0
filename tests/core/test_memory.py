import weakref

from raidproof.core.memory import release


class Node:
    def __init__(self) -> None:
        self.itself = self


def test_objects_that_refer_to_each_other_are_freed() -> None:
    seen = weakref.ref(Node())
    assert seen() is not None
    release()
    assert seen() is None
