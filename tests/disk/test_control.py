"""The control socket: round trips of messages over a real socket, and errors."""

import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raidproof.core.errors import DeadlineExceeded, RigError
from raidproof.disk.cache import CacheMode, CutPolicy, CutResult
from raidproof.disk.client import EngineClient
from raidproof.disk.control import VERBS, ControlServer
from raidproof.disk.disk_fault import failed
from raidproof.disk.engine import Engine
from raidproof.disk.messages import (
    Busy,
    Counters,
    Description,
    Disks,
    LogClosed,
    MemberSpec,
    MessageError,
    Power,
    Use,
    build,
    decode,
    encode,
    load_disks,
    save_disks,
)
from raidproof.disk.profile import load_profile
from raidproof.disk.timing.hardware import ControllerSpec

SIZE = 1 << 20
BLOCK = b"x" * 4096

numbers = st.integers(0, 1 << 62)
specs = st.builds(MemberSpec, st.text(), numbers, st.sampled_from(CacheMode))
busy = st.lists(st.builds(Busy, st.text(), *[numbers] * 3), max_size=3).map(tuple)
results = st.one_of(
    st.builds(LogClosed, st.text(), numbers, numbers, st.none() | st.text()),
    st.builds(
        Description,
        st.sampled_from(Power),
        st.lists(specs, max_size=3).map(tuple),
        numbers,
        st.none() | st.text(),
        st.none() | st.text(),
        numbers,
    ),
    st.builds(CutResult, st.text(), *[numbers] * 6),
    st.builds(Counters, st.text(), numbers),
    st.builds(Use, *[numbers] * 6, busy, busy),
    st.builds(Disks, st.lists(specs, max_size=3).map(tuple)),
)


@given(results)
def test_every_result_survives_the_line(result: Use) -> None:
    line = encode(result)
    assert line.count(b"\n") == 1
    assert build(type(result), decode(line)) == result


@pytest.mark.parametrize("line", [b"", b"[]", b"1", b"not json"])
def test_what_is_no_message_is_refused(line: bytes) -> None:
    with pytest.raises(MessageError, match=r"not JSON|not a JSON object"):
        decode(line)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (int, "soon"),
        (int, True),
        (CutPolicy, "hope"),
        (Busy, {"name": "d0", "busy_ns": 1, "requests": 1}),
        (Busy, {"name": "d0", "busy_ns": 1, "requests": 1, "bytes": 1, "more": 2}),
        (tuple[Counters, ...], [1]),
        (tuple[str, ...], "d0"),
        (type(None), 1),
    ],
)
def test_what_is_of_another_type_is_refused(kind: type, value: object) -> None:
    with pytest.raises(MessageError, match=r"^a value of type "):
        build(kind, value)


def test_the_file_of_members(tmp_path: Path) -> None:
    members = (MemberSpec("d0", SIZE), MemberSpec("d1", SIZE, CacheMode.LYING))
    save_disks(tmp_path / "disks", Disks(members))
    assert load_disks(tmp_path / "disks").members == members
    (tmp_path / "disks").write_bytes(encode({"verb": "freeze"}))
    with pytest.raises(MessageError, match=r"type Disks .*unknown fields: verb"):
        load_disks(tmp_path / "disks")


@pytest.fixture
def client(engine: Engine, tmp_path: Path) -> Iterator[EngineClient]:
    ControlServer(engine, tmp_path / "control").start()
    with EngineClient(tmp_path / "control") as client:
        yield client


def test_a_whole_cut_over_the_socket(engine: Engine, client: EngineClient, tmp_path: Path) -> None:
    client.log_start(tmp_path / "log")
    client.set_mode(CacheMode.LYING, ["d1"])
    for serial in ("d0", "d1"):
        port = engine.connect(serial)
        port.write(BLOCK, 0, False)
        port.flush()
    assert [(c.writes, c.flushes, c.lied) for c in client.counters().values()] == [(1, 1, 0), (1, 1, 1)]
    marked = client.mark("cut")
    frozen = client.freeze()
    assert frozen > marked
    assert client.describe().power is Power.FROZEN
    assert [cut_result.broken_promises for cut_result in client.resolve(CutPolicy.DROP, seed=3)] == [0, 1]
    assert client.power_on() > frozen
    client.image("d0", tmp_path / "d0")
    client.image("d1", tmp_path / "d1")
    assert (tmp_path / "d0").read_bytes()[:4096] == BLOCK
    assert not any((tmp_path / "d1").read_bytes())
    assert client.log_stop().records > 7
    client.reset()
    description = client.describe()
    assert (description.power, description.log, description.connections) == (Power.ON, None, 0)
    assert [m.mode for m in description.members] == [CacheMode.VOLATILE] * 2


def test_timing_and_use_over_the_socket(tmp_path: Path) -> None:
    profile = load_profile("ssd-sata")
    engine = Engine([MemberSpec("d0", SIZE, profile=profile, controller="c0")], [ControllerSpec("c0", 500.0)])
    ControlServer(engine, tmp_path / "control").start()
    with EngineClient(tmp_path / "control") as client:
        engine.connect("d0").write(BLOCK, 0, True)
        before = client.use()
        client.set_timing(True)
        engine.connect("d0").write(BLOCK, 0, True)
        client.set_timing(False)
        engine.connect("d0").write(BLOCK, 0, True)
        after = client.use()
    assert (before.served, after.served) == (0, 1)
    assert after.at_ns > before.at_ns
    assert [(one.name, one.requests, one.bytes) for one in (*after.members, *after.controllers)] == [
        ("d0", 1, len(BLOCK)),
        ("c0", 1, len(BLOCK)),
    ]
    assert all(one.busy_ns > 0 for one in (*after.members, *after.controllers))


def test_a_refusal_has_the_message_of_the_engine(client: EngineClient) -> None:
    with pytest.raises(RigError, match=r"disk engine: .*frozen disks; the power is on"):
        client.resolve()
    with pytest.raises(RigError, match="disk engine: no member has serial number 'd7'; members: d0, d1"):
        client.set_mode(CacheMode.LYING, ["d7"])
    with pytest.raises(RigError, match=r"disk engine: .*no timing profile"):
        client.set_timing(True)
    assert client.describe().power is Power.ON


def test_a_line_that_is_no_request_is_refused(engine: Engine, tmp_path: Path) -> None:
    server = ControlServer(engine, tmp_path / "control")
    for line, reason in (
        (b"garbage", "a line of the protocol is not JSON: b'garbage': Expecting value: line 1 column 1 (char 0)"),
        (encode({"verb": "note"}), "the disk engine has no operation 'note'"),
        (encode({"verb": "mark", "words": "x"}), "the operation 'mark' has no argument words"),
        (
            encode({"verb": "set_mode", "serials": "d0", "mode": "lying"}),
            "a value of type collections.abc.Iterable[str] | None is invalid: d0",
        ),
    ):
        answer = server.answer(line)
        assert list(answer) == ["refused"]
        assert str(answer["refused"]).startswith(reason)
    assert "missing 1 required positional argument" in str(server.answer(encode({"verb": "mark"})))


def test_every_operation_can_be_requested(
    client: EngineClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "_ask", recorder := Recorder(client._ask))
    client.set_mode(CacheMode.VOLATILE)
    client.log_start(tmp_path / "log")
    client.mark("x")
    client.log_stop()
    client.freeze()
    client.resolve()
    client.swap("d0", "d1")
    client.power_on()
    with pytest.raises(RigError, match="no disk has a connection of machine 'server'"):
        client.fence("server")
    client.set_disk_fault("d0", failed())
    client.clear_disk_faults(["d0"])
    client.corrupt("d0", 0, 512)
    client.image("d0", tmp_path / "image")
    client.reset(["d1"])
    assert set(client.counters()) == {one.serial for one in client.describe().members}
    assert client.use().served == 0
    with pytest.raises(RigError, match="no timing profile"):
        client.set_timing(True)
    with pytest.raises(RigError, match="cache mode must be lying"):
        client.show(tmp_path / "log")
    assert recorder.verbs == set(VERBS)


class Recorder:
    """Passes requests on, and keeps their verbs."""

    def __init__(self, ask: Callable[..., Any]) -> None:
        self.ask = ask
        self.verbs: set[str] = set()

    def __call__(self, expected: type, verb: str, *patience: int, **arguments: object) -> Any:
        self.verbs.add(verb)
        return self.ask(expected, verb, *patience, **arguments)


def test_an_error_in_the_engine_is_reported(engine: Engine, client: EngineClient) -> None:
    del engine.drives
    with pytest.raises(RigError, match="the disk engine failed: AttributeError"):
        client.describe()


def test_a_missing_engine_is_reported(tmp_path: Path) -> None:
    with pytest.raises(DeadlineExceeded, match="no disk engine listens"):
        EngineClient(tmp_path / "control", deadline_s=0.05)


def listen(path: Path, answer: bytes | None) -> list[socket.socket]:
    """Act as an engine that sends one reply and disconnects, or (None) sends nothing while the result is held."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(path))
    listener.listen()
    kept: list[socket.socket] = []

    def serve() -> None:
        connection, _ = listener.accept()
        kept.append(connection)
        connection.recv(1000)
        if answer is not None:
            connection.sendall(answer)
            connection.close()

    threading.Thread(target=serve, daemon=True).start()
    return kept


def test_a_silent_engine_is_given_up(tmp_path: Path) -> None:
    held = listen(tmp_path / "control", None)
    client = EngineClient(tmp_path / "control", deadline_s=0.2)
    with pytest.raises(DeadlineExceeded, match="did not answer 'freeze'"):
        client.freeze()
    with pytest.raises(RigError, match="'freeze' to the disk engine: the connection is closed"):
        client.freeze()
    assert len(held) == 1


def test_a_request_without_a_reply_is_given_up(tmp_path: Path) -> None:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(tmp_path / "control"))
    listener.listen()
    with pytest.raises(DeadlineExceeded, match="did not answer 'mark'"):
        EngineClient(tmp_path / "control", deadline_s=0.2).mark("more than a socket holds" * (1 << 16))
    listener.close()


def test_an_engine_that_hangs_up_or_answers_beside_the_point(tmp_path: Path) -> None:
    listen(tmp_path / "gone", b"")
    with pytest.raises(RigError, match="disk engine broke during 'freeze'"):
        EngineClient(tmp_path / "gone").freeze()
    listen(tmp_path / "odd", encode({"result": "now"}))
    with pytest.raises(RigError, match="type int is invalid: now"):
        EngineClient(tmp_path / "odd").freeze()
