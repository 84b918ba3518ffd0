from raidproof.disk.cache import CutPolicy
from raidproof.disk.connection import Drive
from raidproof.disk.messages import MemberSpec

SIZE = 1 << 20


def left(serial: str, seed: int) -> bytes:
    drive = Drive(0, MemberSpec(serial, SIZE))
    for sector in range(SIZE // 512):
        drive.member.write(b"1" * 512, sector * 512)
    drive.cut(CutPolicy.RANDOM, seed)
    return drive.member.image().content(0, SIZE)


def test_each_members_cache_is_drawn_for_itself_from_one_seed() -> None:
    assert left("d0", 1) == left("d0", 1)
    assert len({left(serial, seed) for serial in ("d0", "d1", "d2") for seed in (1, 2)}) == 6
