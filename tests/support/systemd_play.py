"""The person at the machine of tests/integration/test_service_systemd.py: types commands, writes down what they said.

Runs as root inside the container; the last line it writes to LODGER_TEST_PLAY is the whole account as JSON.
"""

import json
import os
import pwd
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

LODGER = (sys.executable, "-m", "lodger_cli.main")
WORK = Path("/var/lib/lodger-home/lodger")
ENVIRONMENT = {**os.environ, "PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/", "LANG": "C.UTF-8"}
AS_USER = {**ENVIRONMENT, "HOME": "/var/lib/lodger-home", "XDG_STATE_HOME": "/var/lib", "XDG_CONFIG_HOME": "/etc"}


def service(*arguments: str) -> dict[str, Any]:
    done = subprocess.run(
        [*LODGER, "service", *arguments, "--system", "--json"], env=ENVIRONMENT, cwd="/", capture_output=True, text=True
    )
    try:
        return {"code": done.returncode, **json.loads(done.stdout)}
    except ValueError:
        return {"code": done.returncode, "out": done.stdout, "err": done.stderr[-2000:]}


def ask(text: str) -> "subprocess.Popen[str]":
    user = pwd.getpwnam("lodger")
    return subprocess.Popen(
        [*LODGER, "ask", text], env=AS_USER, cwd="/", user=user.pw_uid, group=user.pw_gid, extra_groups=[],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip


def wait(condition: Any, limit_s: float = 40.0) -> bool:
    deadline = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True


def manager(*arguments: str) -> str:
    return subprocess.run(["systemctl", *arguments], env=ENVIRONMENT, capture_output=True, text=True).stdout.strip()


def connected() -> bool:
    return any("connected" in part.get("status", "") for part in service("status").get("parts", []))


def play() -> dict[str, Any]:
    account: dict[str, Any] = {"manager": wait(lambda: manager("show", "--property=Version"))}
    account["install"] = service("install")
    account["connected"] = wait(connected)
    account["again"] = service("install")
    account["asked"] = ask("run id -un; echo in-a-box").communicate(timeout=60)[0]
    asking = ask("run echo begun > mark; while [ ! -e go ]; do sleep 0.1; done; echo ended >> mark")
    account["begun"] = wait((WORK / "mark").exists)
    before = manager("show", "-P", "MainPID", "lodger-daemon.service")
    account["restart"] = service("restart")
    account["another"] = manager("show", "-P", "MainPID", "lodger-daemon.service") != before
    (WORK / "go").touch()
    account["ended"] = wait(lambda: (WORK / "mark").read_text() == "begun\nended\n")
    asking.communicate(timeout=60)
    main = manager("show", "-P", "MainPID", "lodger-daemon.service")
    began = time.monotonic()
    account["uninstall"] = service("uninstall")
    account["stopped_in_s"] = time.monotonic() - began
    account["gone"] = not Path(f"/proc/{main}").exists()
    account["status"] = service("status")["code"]
    return account


if __name__ == "__main__":
    path = Path(os.environ["LODGER_TEST_PLAY"])
    try:
        told = play()
    except Exception as error:  # the test shows it
        told = {"error": repr(error)}
    path.with_suffix(".new").write_text(json.dumps(told))
    path.with_suffix(".new").replace(path)
