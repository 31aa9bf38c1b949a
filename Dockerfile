# docker build -t registry.example.com/reconciler:0.1.0 .
# With the versions that requirements-dev.txt locks, and with every extra unless EXTRAS names some: EXTRAS=notify,postgres.
# To build the same image again, pin the base by its digest, which `docker buildx imagetools inspect` prints:
# --build-arg BASE=python:3.13.5-slim-bookworm@sha256:…
# No secret is built in: credentials come from the environment of the container.
ARG BASE=python:3.13.5-slim-bookworm
FROM ${BASE} AS build
ARG EXTRAS=all
WORKDIR /src
COPY LICENSE README.md hatch_build.py pyproject.toml requirements-dev.txt ./
COPY reconciler reconciler
RUN sed -n 's/^\([a-z].*==[^\\]*\).*/\1/p' requirements-dev.txt > constraints.txt && \
    python -m venv /opt/reconciler && \
    /opt/reconciler/bin/pip install --no-cache-dir --constraint constraints.txt ".[${EXTRAS}]"

FROM ${BASE}
LABEL org.opencontainers.image.title="reconciler" \
      org.opencontainers.image.description="Declarative training jobs for Huawei Cloud ModelArts and Open Telekom Cloud" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /opt/reconciler /opt/reconciler
ENV PATH="/opt/reconciler/bin:${PATH}" PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
WORKDIR /jobs
USER 10001:10001
ENTRYPOINT ["reconciler"]
CMD ["--help"]
