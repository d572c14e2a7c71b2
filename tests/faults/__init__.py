"""A fault run against whole processes: `python -m tests.faults --minutes N [--seed S]`.

__main__.py   starts everything, injects, lets it settle, and audits
postgres.py   the database server, which can be killed and comes back on the same port and data
processes.py  `perdure serve` and `perdure worker`, killed and stopped, restarted at once
injector.py   what goes wrong, and when
clients.py    clients under load, which keep what they were told
tools.py      the tools that run: their effects can be counted from outside
evidence.py   all that is known at the end: the database's rows, the tools' journal, the logs
audit.py      what must hold of it
recovery.py   how soon the tasks of a killed worker were rescued
report.py     the figures
"""
