from types import SimpleNamespace
from typing import Any, cast

from raidproof.teach.locks import _Watch
from raidproof.workload.lock import Answer


class FakeHolder:
    """Stands for a process in a client: gives these answers, in order."""

    def __init__(self, name: str, *answers: Answer) -> None:
        self.client = SimpleNamespace(name=name)
        self.answers = list(answers)
        self.calls: list[str] = []

    def open(self, _path: str) -> int:
        return 3

    def do(self, call: str, *_: Any) -> Answer:
        self.calls.append(call)
        return self.answers.pop(0)


def watch_of(holder: FakeHolder, other: FakeHolder) -> _Watch:
    export = SimpleNamespace(end_grace=lambda: None, end_lockd_grace=lambda: None, client_records="/var/lib/nfs")
    mounts = {holder.client.name: SimpleNamespace(directory="/mnt")}
    lab = SimpleNamespace(server=SimpleNamespace(succeed=lambda _: None), clients=[])
    stack = SimpleNamespace(export=export, mounts=mounts)
    return _Watch(cast(Any, SimpleNamespace(lab=lab, stack=stack)), cast(Any, holder), cast(Any, other))


def test_a_refused_second_lock_is_observed() -> None:
    watch = watch_of(FakeHolder("client2", Answer(0)), FakeHolder("client1", Answer(None, "EAGAIN")))
    watch.take()
    assert watch.seen.values == {"refused_before": 1.0}
    assert watch.seen.sentences == ["client1 requests the lock: it fails with EAGAIN"]


def test_a_server_that_grants_the_second_lock_is_observed() -> None:
    watch = watch_of(FakeHolder("client2", Answer(0)), FakeHolder("client1", Answer(0)))
    watch.take()
    assert watch.seen.values == {"refused_before": 0.0}


def test_errors_of_the_holder_are_counted() -> None:
    watch = watch_of(FakeHolder("client2", Answer(4), Answer(None, "EIO")), FakeHolder("client1"))
    watch._holder_writes()
    assert watch.seen.values["holder_errors"] == 1.0
    assert watch.seen.sentences[-1] == "client2, which held the lock, calls fsync: it fails with EIO"


def test_the_first_answer_after_the_event_decides() -> None:
    watch = watch_of(FakeHolder("client2"), FakeHolder("client1"))
    watch._answered(Answer(None, "EAGAIN"), 0)
    assert (watch.seen.values["kept"], watch.seen.values["taken"]) == (1.0, 0.0)
    watch._answered(Answer(0), 0)
    assert (watch.seen.values["kept"], watch.seen.values["taken"]) == (0.0, 1.0)
