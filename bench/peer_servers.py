"""Servers of others beside the gateway: TensorZero, Ferro Labs' gateway, and Envoy, the floor of a plain proxy.

Each is installed from PyPI at one version into a folder of its own below the bench's cache, by the hashes in
`peers.txt`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from bench.subjects import Subject, run_to_end, running
from tests.stack.product import descendants, eventually, free_port

REQUIREMENTS = Path(__file__).with_name("peers.txt")
_OPENAI_KEY = {"OPENAI_API_KEY": "x"}
# TensorZero has its gateway in the package of its Python client, on a port that it chooses itself.
_TENSORZERO = (
    "import sys, threading\n"
    "from pathlib import Path\n"
    "from tensorzero.tensorzero import _start_http_gateway\n"
    "gateway = _start_http_gateway(config_file=sys.argv[1], clickhouse_url=None, postgres_url=None, valkey_url=None,"
    " async_setup=False)\n"
    "Path(sys.argv[2]).write_text(gateway.base_url)\n"
    "threading.Event().wait()\n"
)


def install(cache: Path) -> None:
    """Install the servers unless they are there. Raises OSError."""
    folder = cache / "peers"
    stamp, wanted = folder / ".installed", REQUIREMENTS.read_text()
    if not stamp.exists() or stamp.read_text() != wanted:
        print("installing TensorZero, Ferro and Envoy …", flush=True)
        run_to_end([sys.executable, "-m", "venv", "--clear", str(folder)])
        pip = [str(folder / "bin" / "pip"), "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
        run_to_end([*pip, "--only-binary", ":all:", "--require-hashes", "-r", str(REQUIREMENTS)])
        stamp.write_text(wanted)


@contextmanager
def tensorzero(upstream_port: int, cache: Path, home: Path) -> Iterator[Subject]:
    """Run TensorZero's gateway without its stores: it keeps no records then, and asks for no key."""
    config, told = home / "tensorzero.toml", home / "tensorzero.url"
    config.write_text(
        '[gateway]\nobservability.enabled = false\n[models.echo-fast]\nrouting = ["upstream"]\n'
        '[models.echo-fast.providers.upstream]\ntype = "openai"\nmodel_name = "echo-fast"\n'
        f'api_base = "http://127.0.0.1:{upstream_port}/v1/"\n'
    )
    told.unlink(missing_ok=True)
    with running(
        [str(cache / "peers" / "bin" / "python"), "-c", _TENSORZERO, str(config), str(told)], None, _OPENAI_KEY
    ) as process:
        eventually(lambda: told.exists() and told.read_text(), patience=60)
        address = urlsplit(told.read_text())
        model = "tensorzero::model_name::echo-fast"
        yield Subject("TensorZero (no store)", address.port or 0, [process.pid], model, root=address.path.rstrip("/"))


@contextmanager
def ferro(upstream_port: int, cache: Path, home: Path) -> Iterator[Subject]:
    """Run Ferro Labs' gateway with a master key and its stores in memory.

    It listens on every interface: run it where there is none but loopback (`machine.isolate`).
    """
    config = home / "ferro.yaml"
    config.write_text("strategy:\n  mode: single\ntargets:\n  - virtual_key: openai\n")
    port = free_port()
    environment = {
        **_OPENAI_KEY,
        "OPENAI_BASE_URL": f"http://127.0.0.1:{upstream_port}",
        "GATEWAY_CONFIG": str(config),
        "MASTER_KEY": "fgw_bench",
        "LOG_LEVEL": "error",
        # A rate limit that a load test does not hit; without one it has a low one by address.
        "RATE_LIMIT_RPS": "1000000",
        "RATE_LIMIT_BURST": "1000000",
        "PORT": str(port),
    }
    with running([str(cache / "peers" / "bin" / "ferrogw")], port, environment) as process:
        workers = [process.pid, *descendants(process.pid)]
        headers = {"Authorization": "Bearer fgw_bench"}
        # A model of its own list: it has no others.
        yield Subject("Ferro (in memory)", port, workers, "gpt-4o", headers, is_governed=True)


@contextmanager
def envoy(upstream_port: int, cache: Path, home: Path) -> Iterator[Subject]:
    """Run Envoy as a plain proxy with one thread."""
    port, config = free_port(), home / "envoy.json"
    config.write_text(json.dumps(_envoy_config(port, upstream_port)))
    command = [str(cache / "peers" / "bin" / "envoy"), "-c", str(config), "--concurrency", "1", "--disable-hot-restart"]
    with running([*command, "--log-level", "error"], port) as process:
        yield Subject("Envoy (plain proxy)", port, [process.pid, *descendants(process.pid)])


def _envoy_config(port: int, upstream_port: int) -> dict[str, object]:
    def address(number: int) -> dict[str, object]:
        return {"socket_address": {"address": "127.0.0.1", "port_value": number}}

    kinds = "type.googleapis.com/envoy.extensions.filters"
    route = {"match": {"prefix": "/"}, "route": {"cluster": "upstream", "timeout": "60s"}}
    router = {"name": "envoy.filters.http.router", "typed_config": {"@type": f"{kinds}.http.router.v3.Router"}}
    manager = {
        "@type": f"{kinds}.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "bench",
        "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [route]}]},
        "http_filters": [router],
    }
    filters = [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]
    endpoint = {"endpoint": {"address": address(upstream_port)}}
    cluster = {
        "name": "upstream",
        "type": "STATIC",
        "connect_timeout": "5s",
        "load_assignment": {"cluster_name": "upstream", "endpoints": [{"lb_endpoints": [endpoint]}]},
    }
    listener = {"address": address(port), "filter_chains": [{"filters": filters}]}
    return {"static_resources": {"listeners": [listener], "clusters": [cluster]}}
