"""Values and the state machine: no I/O, nothing of the wire, nothing of SQL."""
