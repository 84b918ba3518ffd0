"""The service times of requests on simulated disks and controllers: a discrete-event simulation.

The simulation has no clock, no threads and no sockets. Times are integers in ns on the caller's clock.
"""
