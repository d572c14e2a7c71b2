"""Tools to look at and to try, one idea a file; `--tools app.examples` loads them all.

hello_world    asks the user one question
slow_compute   takes its time, tells how it gets on, and can be cancelled
load_csv       loads a large file in steps that happen exactly once, whatever dies in between
"""

from app.examples.hello_world import hello_world
from app.examples.load_csv import load_csv
from app.examples.slow_compute import slow_compute

__all__ = ["hello_world", "load_csv", "slow_compute"]
