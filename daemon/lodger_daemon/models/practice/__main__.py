"""The practice model's process: `python -m lodger_daemon.models.practice`.

Reads its bearer token from the first line of standard input, prints its address as one line of JSON, serves until
standard input is closed.
"""

import asyncio
import json
import signal
import sys

from lodger_daemon.models.practice.server import PracticeServer


async def _run() -> None:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    token = (await reader.readline()).decode().strip()
    if not token:
        sys.exit("The practice model needs a token on the first line of its standard input.")
    server, url = await PracticeServer(token).start()
    sys.stdout.write(json.dumps({"url": url}) + "\n")
    sys.stdout.flush()
    async with server:
        while await reader.read(4096):
            pass


def main() -> None:
    # Ctrl-C in the daemon's terminal reaches the whole group; the closed pipe is what ends this process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    asyncio.run(_run())


if __name__ == "__main__":
    main()
