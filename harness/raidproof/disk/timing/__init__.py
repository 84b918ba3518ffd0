"""How long requests take on disks and controllers: a simulation of discrete events.

Pure: no clock, thread or socket. Times are integers in ns on whatever clock the caller has.
"""
