"""What the fixture ``suite`` returns: the object that runs suites in a lab, and the result of one run."""

from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Self

from raidproof.core.errors import (
    Inconclusive,
    NotEffective,
    RaidproofError,
    RequirementMissing,
    RigError,
)
from raidproof.core.log import logger
from raidproof.lab.lab import Lab
from raidproof.pytest_plugin.fixtures import ERRORS
from raidproof.record.outcome import Outcome
from raidproof.record.suite import SuiteRecord
from raidproof.storage.stack import Stack, StackSpec, on_disks
from raidproof.verdict.suite import judge_suite_record
from raidproof_suites.suite import Suite, run_suite


class SuiteEnded:
    """The result of one run of a suite, with assertions for scenarios."""

    def __init__(self, record: SuiteRecord, run: Path) -> None:
        self.record = record
        self.run = run

    def must_pass(self) -> Self:
        """Assert that no test failed except known failures, and that at least one test passed.

        Raises:
            ProductError: a test failed, or an effective setting of the stack differs from the requested one.
            RigError: the rig failed.
            RequirementMissing: the suite is missing, or all of its tests were skipped.
            Inconclusive: the result of a test is unknown.
        """
        __tracebackhide__ = True
        if self.record.outcome is not Outcome.PASS:
            raise self._as(ERRORS[self.record.outcome], self.record.reason)
        return self

    def must_fail(self) -> Self:
        """Assert that at least one test failed, for a suite on a deliberately broken stack.

        Raises:
            Inconclusive: all tests passed, or the result of a test is unknown.
            ProductError, RigError, RequirementMissing: as for `must_pass`, except for failed tests.
        """
        __tracebackhide__ = True
        if self.record.outcome is Outcome.PASS:
            raise self._as(Inconclusive, f"no test failed: {self.record.reason}")
        if not self.record.outcomes.failed:
            raise self._as(ERRORS[self.record.outcome], self.record.reason)
        # The expected failures must not make the verdict of the run FAIL.
        self.record.known = sorted({*self.record.known, *(case.name for case in self.record.outcomes.failed)})
        judge_suite_record(self.record)
        return self

    def _as(self, kind: type[RaidproofError], reason: str) -> RaidproofError:
        return kind(f"{self.record.title}: {reason}", remedy=f"see {self.run}")


class Suites:
    """Runs suites for one scenario, each on a new stack on blank disks; the records have the scenario's name."""

    def __init__(
        self,
        lab: Lab,
        run: Path,
        name: str,
        *,
        keep: Callable[[SuiteRecord], None] = lambda _: None,
        paths: Mapping[str, str] | None = None,
    ) -> None:
        """Set the lab, the run's folder and the paths of suites by name; ``keep`` adds a record to the run."""
        self._lab = lab
        self._run = run
        self._name = name
        self._keep = keep
        self._paths = paths or {}
        self._turns = 0

    def __call__(
        self,
        stack: StackSpec,
        suite: Suite,
        *,
        known: Collection[str] = (),
        meanwhile: Callable[[Lab, Stack], Callable[[], object]] | None = None,
    ) -> SuiteEnded:
        """Build a stack, run the suite on the first client, remove the stack, and return the judged result.

        ``known``: names of tests whose failure is expected. ``meanwhile``: starts an activity in the lab before the
        suite, and returns the function that ends the activity after the suite.
        """
        self._turns += 1
        name = self._name if self._turns == 1 else f"{self._name}-{self._turns}"
        record = SuiteRecord(
            name=name,
            title=f"{suite.suite} ({name})",
            suite=suite.suite,
            asked={"suite": suite.model_dump(mode="json"), **stack.model_dump(mode="json")},
            client=self._lab.clients[0].name,
            known=sorted(known),
        )
        self._keep(record)
        try:
            self._build_and_run(stack, suite, record, meanwhile)
        except NotEffective as error:
            record.not_effective = str(error)
        except RequirementMissing as error:
            record.requirement_missing = str(error)
        except RigError as error:
            logger.exception("suite %s", name)
            record.rig_error = str(error)
        judge_suite_record(record)
        return SuiteEnded(record, self._run)

    def _build_and_run(
        self,
        spec: StackSpec,
        suite: Suite,
        record: SuiteRecord,
        meanwhile: Callable[[Lab, Stack], Callable[[], object]] | None,
    ) -> None:
        lab = self._lab
        stack = Stack(on_disks(spec, zeroed=lab.disks.zeroed), lab.server, lab.clients)
        stack.create()
        state = stack.activate()
        record.effective = state.model_dump(mode="json")
        try:
            client = lab.clients[0]
            end = meanwhile(lab, stack) if meanwhile else lambda: None
            try:
                done = run_suite(
                    suite,
                    client,
                    lab.server,
                    mount=stack.mounts[client.name].directory,
                    export=stack.export.path,
                    vers=state.mounts[client.name].vers,
                    paths=self._paths,
                )
            finally:
                end()
            record.outcomes, record.seconds, record.path = done.outcome, done.seconds, done.path
            record.commands = [list(argv) for argv in done.commands]
            record.files = {step: self._keep_output(record, step, text) for step, text in done.output.items()}
        finally:
            stack.deactivate()

    def _keep_output(self, record: SuiteRecord, step: str, text: str) -> str:
        path = Path(record.name) / f"{record.suite}-{step.replace('/', '-')}.txt"
        (self._run / path).parent.mkdir(parents=True, exist_ok=True)
        (self._run / path).write_text(text)
        return str(path)
