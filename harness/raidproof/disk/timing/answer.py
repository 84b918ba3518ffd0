"""How a disk or a controller answers: at a time, counted, to whoever asked."""

from raidproof.disk.timing.calendar import Calendar
from raidproof.disk.timing.request import Op, Request
from raidproof.disk.timing.usage import Usage


def answer_at(calendar: Calendar, usage: Usage, request: Request, time_ns: int) -> None:
    """Answer a request at a time; only then it counts."""

    def answer(at: int) -> None:
        if request.op in {Op.READ, Op.WRITE}:
            usage.serve(request.length)
        if request.then is not None:
            request.then(request, at)

    calendar.at(time_ns, answer)
