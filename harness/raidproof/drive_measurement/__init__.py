"""A real drive becomes a profile: probes read it, a fit makes the profile, and a check compares both.

A measurement has four parts. Probes (`rotational_probes.py`, `flash_probes.py`) say what is read. A drive executes
them: a real one (`real_drive.py`), or a simulated one (`simulated_drive.py`). The fit (`rotational_fit.py`,
`flash_fit.py`) makes a profile of the samples. The check (`check.py`) reads the drive in ways that the fit has not
used, and compares it with the simulation of the profile.
"""
