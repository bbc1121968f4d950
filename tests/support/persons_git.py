"""Git as a person types it."""

import subprocess
from pathlib import Path

from support.patience import LIMIT_S


def git(*arguments: str, cwd: Path | None = None, token: str = "") -> str:
    """A person's own git, with nothing of this machine's settings; the token goes as a header, not in the address."""
    environment = {
        "PATH": "/usr/bin:/bin:/usr/local/bin",
        "HOME": "/nonexistent",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_TERMINAL_PROMPT": "0",
        "LC_ALL": "C",
    }
    if token:
        import base64

        basic = base64.b64encode(f"letta:{token}".encode()).decode()
        environment |= {
            "GIT_CONFIG_COUNT": "1",
            "GIT_CONFIG_KEY_0": "http.extraHeader",
            "GIT_CONFIG_VALUE_0": f"Authorization: Basic {basic}",
        }
    done = subprocess.run(
        ["git", "-c", "safe.directory=*", *arguments], cwd=cwd, env=environment, capture_output=True, text=True,
        timeout=LIMIT_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"git {' '.join(arguments)}: {done.stdout}{done.stderr}"
    return done.stdout
