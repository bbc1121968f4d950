"""The person at the machine of tests/integration/test_service_systemd.py: types commands, writes down what they said.

Runs as root inside the container; the last line it writes to LODGER_TEST_PLAY is the whole account as JSON.
"""

import json
import os
import pwd
import subprocess
import sys
import time
import traceback
import urllib.request
from pathlib import Path
from typing import Any

LODGER = (sys.executable, "-m", "lodger_cli.main")
ENDPOINT = Path(__file__).with_name("model_endpoint.py")
SETTINGS = Path("/etc/lodger/settings.toml")
KEY_FILE = Path("/etc/lodger-mine.key")
KEY = "sk-credential-of-the-play"
WORK = Path("/var/lib/lodger-home/lodger-work")
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


def ask(text: str, *options: str) -> "subprocess.Popen[str]":
    user = pwd.getpwnam("lodger")
    return subprocess.Popen(
        [*LODGER, "ask", text, *options], env=AS_USER, cwd="/", user=user.pw_uid, group=user.pw_gid, extra_groups=[],
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


def model_endpoint() -> str:
    """The scripted one, in this container; its address."""
    process = subprocess.Popen(
        [sys.executable, str(ENDPOINT)], env=ENVIRONMENT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    return str(json.loads(process.stdout.readline())["url"])


def with_a_key(url: str) -> list[str]:
    """Settings with a provider of the person's own, and its key where root alone can read it."""
    SETTINGS.parent.mkdir(mode=0o755, exist_ok=True)  # as somebody would who writes settings before installing
    SETTINGS.write_text(f'[providers.mine]\nbase_url = "{url}/v1"\nmodels = ["scripted"]\n')
    KEY_FILE.write_text(f"{KEY}\n")
    KEY_FILE.chmod(0o600)
    return ["--credential", f"mine:{KEY_FILE}"]


def heard_keys(url: str) -> list[str]:
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(f"{url}/requests", timeout=10) as answer:
        return [str(request["headers"].get("authorization")) for request in json.loads(answer.read())]


def places_with_the_key(pid: str) -> list[str]:
    """Where the key must not be: arguments and environment of the daemon, the unit, the journal of this play."""
    places = {name: Path(f"/proc/{pid}/{name}").read_bytes() for name in ("cmdline", "environ")}
    places["unit"] = Path("/etc/systemd/system/lodger-daemon.service").read_bytes()
    places["database"] = b"".join(file.read_bytes() for file in Path("/var/lib/lodger").glob("lodger.db*"))
    return [name for name, content in places.items() if KEY.encode() in content]


def play(account: dict[str, Any]) -> None:
    account["manager"] = wait(lambda: manager("show", "--property=Version"))
    url = model_endpoint()
    account["install"] = service("install", *with_a_key(url))
    account["connected"] = wait(connected)
    account["result"] = manager("show", "-p", "Result,ExecMainStatus", "lodger-daemon.service")
    account["again"] = service("install", "--credential", f"mine:{KEY_FILE}")
    account["answer"] = ask("hello", "--model", "mine/scripted").communicate(timeout=60)[0]
    account["keys"] = heard_keys(url)
    account["key_seen"] = places_with_the_key(manager("show", "-P", "MainPID", "lodger-daemon.service"))
    account["asked"] = ask(
        "run id -un; echo in-a-box; ls /run/credentials; env | grep -c CREDENTIALS", "--model", "practice/practice"
    ).communicate(timeout=60)[0]
    waiting = "run echo begun > mark; while [ ! -e go ]; do sleep 0.1; done; echo ended >> mark"
    asking = ask(waiting, "--model", "practice/practice")
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


if __name__ == "__main__":
    path = Path(os.environ["LODGER_TEST_PLAY"])
    told: dict[str, Any] = {}
    try:
        play(told)
    except Exception:  # the test shows it, and what was seen before
        told["error"] = traceback.format_exc()
    path.with_suffix(".new").write_text(json.dumps(told))
    path.with_suffix(".new").replace(path)
