"""The litellm worker: `python -m lodger_daemon.models.litellm_worker FD SECRETS_FOLDER`, started by the daemon only."""

import asyncio
import os
import signal
import socket
import sys
from pathlib import Path

from lodger_daemon.models.keys import KeyStore
from lodger_daemon.models.litellm_worker.no_redirects import stay_where_told
from lodger_daemon.models.worker.serving import serve

# Read while litellm is imported: no price list from the network, no .env of whatever folder this is.
_QUIET = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_OFFLINE_MODE": "true", "LITELLM_MODE": "PRODUCTION"}


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    channel = socket.socket(fileno=int(sys.argv[1]))
    keys = KeyStore(Path(sys.argv[2]), dict(os.environ))
    os.environ.update(_QUIET)
    stay_where_told()
    from lodger_daemon.models.litellm_worker.litellm_caller import LitellmCaller

    asyncio.run(serve(channel, LitellmCaller(keys)))


if __name__ == "__main__":
    main()
