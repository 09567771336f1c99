# syntax=docker/dockerfile:1
# The Holdfast worker (and its command line): dependencies by requirements/runtime.lock, nothing resolved at build time.
FROM python:3.11.14-slim-bookworm@sha256:65a93d69fa75478d554f4ad27c85c1e69fa184956261b4301ebaf6dbb0a3543d AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
WORKDIR /src
COPY requirements/runtime.lock requirements/build.lock requirements/
RUN python -m venv /opt/holdfast \
    && /opt/holdfast/bin/pip install --require-hashes --only-binary :all: -r requirements/runtime.lock \
    && python -m venv /opt/build \
    && /opt/build/bin/pip install --require-hashes --only-binary :all: -r requirements/build.lock
COPY pyproject.toml MANIFEST.in README.md CHANGELOG.md LICENSE ./
COPY holdfast holdfast
COPY workflows workflows
COPY activities activities
COPY worker worker
COPY local local
COPY deploy deploy
# The local stack builds and starts programs: an image that runs in production has none of it.
RUN /opt/build/bin/pip wheel --no-build-isolation --no-deps --wheel-dir /opt/wheels . \
    && /opt/holdfast/bin/pip install --no-index --no-deps /opt/wheels/*.whl \
    && rm -r /opt/holdfast/lib/python3.11/site-packages/holdfast/local

FROM python:3.11.14-slim-bookworm@sha256:65a93d69fa75478d554f4ad27c85c1e69fa184956261b4301ebaf6dbb0a3543d
LABEL org.opencontainers.image.title="holdfast" \
      org.opencontainers.image.description="Kubernetes workload lifecycles as durable Temporal workflows" \
      org.opencontainers.image.licenses="Apache-2.0"
ENV PATH=/opt/holdfast/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
COPY --from=build /opt/holdfast /opt/holdfast
RUN groupadd --gid 10001 holdfast \
    && useradd --uid 10001 --gid 10001 --no-create-home --shell /usr/sbin/nologin holdfast
USER 10001:10001
WORKDIR /tmp
EXPOSE 9464
# Ready: connected to Temporal and, where a role needs it, to the cluster it was bound to.
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=3 \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8085/readyz', timeout=3)"]
CMD ["holdfast", "worker"]
