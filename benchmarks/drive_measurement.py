"""Measures simulated drives, and prints how well the profiles that are made of the samples predict the drives.

The drives are those of the shipped profiles, and ten random ones. No machine runs: the simulation takes virtual time.
Run it as `python -m benchmarks.drive_measurement`.
"""

from statistics import median, quantiles

from raidproof.drive_measurement.check import checked
from raidproof.drive_measurement.result import fitted
from raidproof.drive_measurement.sample import usual
from tests.drive_measurement.drives import DRIVES, facts, measured

BARS = "bar: median at most 5 %, nine of ten within 12 %"


def main() -> None:
    """Print the table."""
    every: list[float] = []
    for drive in DRIVES:
        samples = measured(drive)
        seconds = sum(sample.duration_s for sample in samples.values())
        profile, residuals = fitted(facts(drive), samples)
        check = checked(profile, usual(samples))
        found = [abs(cell.deviation) for cell in check.cells]
        every += found
        print(
            f"{drive.name:<22} median {median(found):.1%}, nine of ten within {quantiles(found, n=10)[-1]:.1%}, worst "
            f"{check.worst.deviation:+.1%} ({check.worst.workload}); {seconds:.0f} s of reads",
            flush=True,
        )
        for _, text in residuals:
            print(f"  not explained: {text}")
    within = sum(one <= 0.12 for one in every) / len(every)
    print(f"{len(every)} cells: median {median(every):.1%}, {within:.1%} within 12 %; {BARS}")


if __name__ == "__main__":
    main()
