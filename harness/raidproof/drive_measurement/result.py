"""The result of a measurement: the profile, the check, and what was not measured or not explained."""

from dataclasses import replace

from pydantic import BaseModel, ConfigDict

from raidproof.core.waiting import wall_clock
from raidproof.disk.drive_model import FLASH, ROTATING, drive_model
from raidproof.disk.profile import Measured, Profile, load_profile
from raidproof.drive_measurement import flash_fit, rotational_fit
from raidproof.drive_measurement.check import Cell, Check, checked
from raidproof.drive_measurement.profile_text import profile_text
from raidproof.drive_measurement.residual import Residual, of_processor, of_rounds, sentences
from raidproof.drive_measurement.sample import Facts, Samples, usual

MEASUREMENT_SCHEMA = 1
NOT_READ = {
    True: "cache.size, cache.sorted, write_seek_extra_ms",
    False: "queue_depth, cache.size, program_us, erase_us, erase_block, flush_us",
}
"""The parameters that reads do not show, by whether the drive rotates."""
_BAD = 0.25
"""Deviation of a workload of the check from which it is named as not explained."""


class DriveMeasurement(BaseModel):
    """The result of ``raidproof profile measure``."""

    model_config = ConfigDict(extra="forbid")

    schema_version: int = MEASUREMENT_SCHEMA
    facts: Facts
    complete: bool
    """Whether all probes were executed; otherwise there is no profile."""
    probes: int
    """Number of executed probes."""
    reads: int
    """Number of reads."""
    bytes: int
    """Bytes that were read."""
    samples_file: str | None = None
    profile_file: str | None = None
    profile: str | None = None
    """The profile as TOML; None: the measurement is incomplete."""
    cells: list[Cell] = []
    """The check: workloads that the fit did not use, as measured and as predicted."""
    median_deviation: float | None = None
    """Median of the absolute deviations of the cells, as a fraction."""
    assumed: str = ""
    """The parameters that were not measured, and the profile that they are from."""
    unexplained: list[str] = []
    """Observations that the profile does not explain."""


def result_of(facts: Facts, samples: Samples, *, complete: bool, name: str = "measured") -> DriveMeasurement:
    """Fit the samples of a measurement, and check the profile; an incomplete measurement has no profile.

    Raises:
        RequestError: the samples are not those of a drive of this kind.
    """
    reads = [read for sample in samples.values() for read in sample.probe.reads]
    result = DriveMeasurement(
        facts=facts,
        complete=complete,
        probes=len(samples),
        reads=len(reads),
        bytes=sum(read.length for read in reads),
    )
    if not complete:
        return result
    profile, residuals = fitted(facts, samples)
    check = checked(profile, usual(samples))
    residuals += [
        (
            1 + abs(cell.deviation),
            f"{cell.workload}: {cell.measured_per_s:,.0f} reads per second, the profile has "
            f"{cell.predicted_per_s:,.0f}",
        )
        for cell in check.cells
        if abs(cell.deviation) > _BAD
    ]
    unexplained = sentences(residuals)
    assumed = f"{NOT_READ[facts.rotational]} (as in {base_of(facts)})"
    profile = replace(profile, name=name, measured=_measured(facts, check, assumed, unexplained))
    return result.model_copy(
        update={
            "profile": profile_text(profile),
            "cells": check.cells,
            "median_deviation": check.median_deviation,
            "assumed": assumed,
            "unexplained": unexplained,
        }
    )


def base_of(facts: Facts) -> str:
    """Return the name of the profile for the parameters that are not measured: that of the drive's model or kind."""
    known = drive_model(facts.model)
    usual = ROTATING if facts.rotational else FLASH
    if known is not None and (load_profile(known.profile).rotational is not None) == facts.rotational:
        return known.profile
    return usual


def fitted(facts: Facts, samples: Samples) -> tuple[Profile, list[Residual]]:
    """Return the profile of a drive, and what the fit does not explain.

    Raises:
        RequestError: the samples are not those of a drive of this kind.
    """
    assumed = load_profile(base_of(facts))
    fit = rotational_fit.fitted if facts.rotational else flash_fit.fitted
    profile, residuals = fit(facts, usual(samples), assumed)
    residuals += [*of_processor(samples), *of_rounds(samples)]
    if facts.write_back is not None:
        profile = replace(profile, cache=replace(profile.cache, write_back=facts.write_back))
    date = wall_clock().date().isoformat()
    return replace(profile, source=f"measured on {date}: {drive_name(facts)}, by reads only"), residuals


def drive_name(facts: Facts) -> str:
    """Return model and serial number of a drive, or its path if the kernel reports neither."""
    return " ".join(filter(None, (facts.model, facts.serial))) or facts.device


def _measured(facts: Facts, check: Check, assumed: str, unexplained: list[str]) -> Measured:
    return Measured(
        drive=drive_name(facts),
        median_deviation_percent=check.median_deviation * 100,
        worst_deviation_percent=check.worst.deviation * 100,
        worst_workload=check.worst.workload,
        assumed=assumed,
        unexplained="; ".join(unexplained),
    )
