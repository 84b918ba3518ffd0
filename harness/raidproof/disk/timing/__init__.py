"""The service times of requests on disks and controllers: a discrete-event simulation.

Pure: no clock, thread or socket. Times are integers in ns on the caller's clock.
"""
