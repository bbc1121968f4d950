"""The lean model worker: `python -m lodger_daemon.models.worker FD SECRETS_FOLDER`, started by the daemon only."""

import gc
import sys

# httpcore imports HTTP/2 where it finds it, which no server is asked for: 2 MB and 10 ms for nothing.
sys.modules["h2"] = None  # type: ignore[assignment]  # the documented way to make an import fail

import asyncio  # noqa: E402
import os  # noqa: E402
import signal  # noqa: E402
import socket  # noqa: E402
from pathlib import Path  # noqa: E402

from lodger_daemon.models.keys import KeyStore  # noqa: E402
from lodger_daemon.models.worker.http_caller import HttpCaller  # noqa: E402
from lodger_daemon.models.worker.serving import serve  # noqa: E402


def main() -> None:
    # Ctrl-C in the daemon's terminal reaches the whole group; the daemon decides when this process ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    channel = socket.socket(fileno=int(sys.argv[1]))
    keys = KeyStore(Path(sys.argv[2]), os.environ)
    gc.freeze()
    asyncio.run(serve(channel, HttpCaller(keys)))


if __name__ == "__main__":
    main()
