"""A server in a box, seen and reached as whoever starts this. Prints one JSON object."""

import asyncio
import json
import os
import sys
from pathlib import Path

from lodger_daemon.ports.dialling import BoxDialler
from lodger_daemon.ports.looking import look
from lodger_tools.box import record as records
from lodger_tools.box.contract import BoxCall, BoxKey, RunCommand
from lodger_tools.box.manager import BoxManager
from support.real_boxes import RealRequests, someone

FOLDER = Path(sys.argv[1])
REQUESTS = RealRequests(FOLDER / "state", FOLDER / "home", user=someone())
PORT = 18673
SERVE = f"""(exec python3 -m http.server {PORT}) >log 2>&1 &
for i in $(seq 500); do (exec 3<>/dev/tcp/127.0.0.1/{PORT}) 2>/dev/null && exit; sleep 0.02; done; cat log; exit 1"""


async def main() -> dict[str, object]:
    workspace = FOLDER / "workspace"
    for folder in (workspace, FOLDER / "home", FOLDER / "state"):
        folder.mkdir()
    (workspace / "index.html").write_text("hello")
    boxes = BoxManager(FOLDER / "state" / "boxes", REQUESTS)
    key = BoxKey("agent-1", str(workspace))
    try:
        outcome = await boxes.run(key, BoxCall("k1", RunCommand(SERVE), str(workspace)))
        (found,) = records.find_boxes(FOLDER / "state" / "boxes")
        dialler = BoxDialler(found)
        reader, writer = await asyncio.open_connection(sock=await dialler.dial(PORT))
        writer.write(b"GET / HTTP/1.0\r\n\r\n")
        answer = await reader.read()
        writer.close()
        dialler.close()
        return {"ran": outcome.text, "seen": sorted(look(found.record)), "answer": answer.decode(), "uid": os.getuid()}
    finally:
        await boxes.end(key)
        await boxes.aclose()


print(json.dumps(asyncio.run(main())))
