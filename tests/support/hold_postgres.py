"""Use the embedded server as a process of its own, which a test can kill: `python -m tests.support.hold_postgres`.

Prints its server's pid and URL, and gives it up when standard input ends.
"""

from __future__ import annotations

import argparse
import os
import sys

from app.embedded_pg import EmbeddedPostgres

parser = argparse.ArgumentParser()
parser.add_argument("root")
parser.add_argument("--die-with-parent", action="store_true")
parser.add_argument("--uid", type=int, help="become this user first")
options = parser.parse_args()
if options.uid is not None:  # now, after the imports: it may not be able to read the interpreter's folder
    os.setgroups([])
    os.setgid(options.uid)
    os.setuid(options.uid)
with EmbeddedPostgres(options.root, throwaway=True, die_with_parent=options.die_with_parent) as server:
    print(server.pid, server.url(), flush=True)
    sys.stdin.read()
