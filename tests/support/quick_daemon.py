"""The real daemon with short heartbeats, as a program: `quick_daemon.py HEARTBEAT_S HUB_URL TOKEN_FILE`."""

import asyncio
import json
import os
import signal
import sys

from lodger_daemon.paths import find_paths
from lodger_daemon.service.notify import Notifier
from lodger_daemon.service.options import DaemonOptions
from lodger_daemon.service.program import run
from lodger_daemon.uplink.timing import UplinkTiming


async def main(heartbeat_s: float, hub_url: str, token_file: str) -> None:
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    notifier = Notifier.take(os.environ, os.getpid())
    options = DaemonOptions(
        paths=find_paths(os.environ),
        environment=dict(os.environ),
        host_name="quick",
        hub_url=hub_url,
        hub_token_file=token_file,
        notifier=notifier,
        uplink_timing=UplinkTiming(probe_interval_s=heartbeat_s),
    )
    await run(options, stopping, lambda facts: print(json.dumps(facts), flush=True))


if __name__ == "__main__":
    asyncio.run(main(float(sys.argv[1]), sys.argv[2], sys.argv[3]))
