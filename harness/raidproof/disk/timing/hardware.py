"""All disks of a lab and what they hang on, on one calendar: requests go in, and come out when they are served."""

from collections.abc import Sequence

from raidproof.core.errors import RequestError
from raidproof.disk.profile import Profile
from raidproof.disk.timing.calendar import Calendar
from raidproof.disk.timing.controller import Controller, ControllerSpec, Disk
from raidproof.disk.timing.flash import FlashDisk
from raidproof.disk.timing.geometry import Placement
from raidproof.disk.timing.request import Request
from raidproof.disk.timing.rotational import RotationalDisk
from raidproof.disk.timing.usage import Usage

Member = tuple[Profile, int, Placement, str | None]
"""Its drive, its bytes, where they lie on the drive, and the controller's name."""


class Hardware:
    """A pure function of what went in and when: it has no clock and no thread."""

    def __init__(self, members: Sequence[Member], controllers: Sequence[ControllerSpec] = ()) -> None:
        self._members = tuple(members)
        self._specs = tuple(controllers)
        self._past = [Usage() for _ in self._members], [Usage() for _ in self._specs]
        self._make()

    def _make(self) -> None:
        self._calendar = Calendar()
        self._done: list[Request] = []
        self._controllers = {spec.name: Controller(spec, self._calendar) for spec in self._specs}
        self._disks: list[Disk | None] = []
        self._doors: list[Disk | Controller | None] = []
        for number, (profile, size, placement, controller) in enumerate(self._members):
            disk = _make_disk(profile, size, placement, self._calendar)
            self._disks.append(disk)
            if disk is None or controller is None:
                self._doors.append(disk)
            else:
                self._controllers[controller].attach(number, disk)
                self._doors.append(self._controllers[controller])

    @property
    def next_ns(self) -> int | None:
        """When something happens next; None if nothing is under way."""
        return self._calendar.next_ns

    def submit(self, request: Request, now_ns: int) -> None:
        """Give a request to its member at a time, or at the last thing that has happened if that was later."""
        now_ns = max(now_ns, self._calendar.reached_ns)
        self._calendar.advance(now_ns)
        request.submitted_ns, request.then = now_ns, self._answered
        door = self._doors[request.member]
        if door is None:
            self._answered(request, now_ns)
        else:
            door.submit(request, now_ns)

    def advance(self, now_ns: int) -> list[Request]:
        """Let time pass, and return the requests that were served until now, in order, each with its ``done_ns``."""
        self._calendar.advance(now_ns)
        done, self._done = self._done, []
        return done

    def reset(self, now_ns: int) -> None:
        """Forget all that is under way: disks idle, caches empty, heads at the rim. Counters stay."""
        self._past = self.busy(now_ns)
        self._make()

    def busy(self, now_ns: int) -> tuple[list[Usage], list[Usage]]:
        """Return what each member and each controller has done until now, since this was made."""
        members = [one.usage.until(now_ns) if one else Usage() for one in self._disks]
        controllers = [one.usage.until(now_ns) for one in self._controllers.values()]
        return (
            [one.plus(before) for one, before in zip(members, self._past[0], strict=True)],
            [one.plus(before) for one, before in zip(controllers, self._past[1], strict=True)],
        )

    def _answered(self, request: Request, now_ns: int) -> None:
        request.done_ns = now_ns
        self._done.append(request)


def _make_disk(profile: Profile, size: int, placement: Placement, calendar: Calendar) -> Disk | None:
    if profile.timed and size > profile.capacity:
        raise RequestError(f"a disk of {size} bytes is more than {profile.name} has, {profile.capacity}")
    if profile.rotational is not None:
        return RotationalDisk(profile, size, placement, calendar)
    return FlashDisk(profile, calendar) if profile.flash is not None else None
