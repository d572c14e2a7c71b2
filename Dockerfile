# One image, and the argument is its role:
#     docker run perdure migrate | serve --host 0.0.0.0 | worker --tools your.module
# Tool authors build on it: FROM perdure, then pip install their package.

FROM python:3.13-slim AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
RUN python -m venv /opt/perdure
WORKDIR /src
COPY . .
RUN /opt/perdure/bin/pip install -c constraints.txt .

FROM python:3.13-slim
RUN useradd --system --uid 10001 --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin perdure
COPY --from=build /opt/perdure /opt/perdure
ENV PATH=/opt/perdure/bin:$PATH PYTHONUNBUFFERED=1
USER perdure
EXPOSE 8765
STOPSIGNAL SIGTERM
ENTRYPOINT ["perdure"]
CMD ["--help"]
