#!/bin/sh
# The first start makes the cluster and, on a server that only this container reaches, the user's database, as the
# official image does; each start then listens everywhere, and asks everybody for the password.
set -eu
if [ ! -e "$PGDATA/PG_VERSION" ]; then
    password=$(mktemp)
    echo "${POSTGRES_PASSWORD:?}" >"$password"
    initdb --username "$POSTGRES_USER" --pwfile "$password" --auth-local trust --auth-host scram-sha-256
    rm "$password"
    echo 'host all all all scram-sha-256' >>"$PGDATA/pg_hba.conf"
    pg_ctl --wait start --options "-c listen_addresses="
    createdb --username "$POSTGRES_USER" --maintenance-db postgres "$POSTGRES_USER"
    pg_ctl --wait stop
fi
exec postgres -c 'listen_addresses=*'
