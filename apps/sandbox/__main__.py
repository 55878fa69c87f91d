"""The sandbox as a process: `python -m apps.sandbox --port 8001`. Prints a line when it listens; SIGTERM ends it."""

from __future__ import annotations

import argparse
import signal
import sys

import gevent

from apps.sandbox.routes import Sandbox
from apps.sandbox.server import listen, serve


def main() -> int:
    """Serve until told to stop."""
    parser = argparse.ArgumentParser(prog="python -m apps.sandbox", description="A provider played from a script.")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8001, help="0 takes a free one")
    parser.add_argument("--reuse-port", action="store_true", help="share the port with the process that reserved it")
    parser.add_argument("--unix", metavar="PATH", help="listen on a Unix socket instead")
    parser.add_argument("--quiet", action="store_true", help="do not print where it listens")
    options = parser.parse_args()
    try:
        listener = listen(options.host, options.port, options.unix, reuse_port=options.reuse_port)
    except OSError as error:
        sys.stderr.write(f"sandbox cannot listen: {error}\n")
        return 1
    server = serve(listener, Sandbox().reply_to)
    for name in (signal.SIGTERM, signal.SIGINT):
        gevent.signal_handler(name, server.stop)
    if not options.quiet:
        address = f"unix:{options.unix}" if options.unix else f"http://{options.host}:{listener.getsockname()[1]}"
        sys.stdout.write(f"sandbox listening on {address}\n")
        sys.stdout.flush()
    server.serve_forever()
    return 0


if __name__ == "__main__":
    sys.exit(main())
