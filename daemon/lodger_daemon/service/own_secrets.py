"""The machine's own secrets, as far as this process can know them: redacted in whatever leaves a box.

No box is shown them; this is for the accident in which one got into a workspace all the same. Provider keys are known
to the model worker alone and cannot be redacted here, except those that came by the daemon's environment.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from lodger_daemon.paths import Paths

_SECRET_ENDINGS: Final = ("_API_KEY", "_TOKEN", "_SECRET", "_PASSWORD", "_SECRET_ACCESS_KEY")
_TOKEN_LIMIT_BYTES: Final = 4096


class OwnSecrets:
    """As they were at the start."""

    def __init__(self, paths: Paths, environment: Mapping[str, str], hub_token_file: Path | None) -> None:
        """Blocking."""
        files = {
            "LODGER_APP_SERVER_TOKEN": paths.state / "app-server.token",
            "LODGER_HUB_CLIENT_TOKEN": paths.hub / "client.token",
            "LODGER_HUB_MACHINE_TOKEN": hub_token_file or paths.hub / "machine.token",
        }
        self._values = {
            name: value for name, value in environment.items() if value and name.endswith(_SECRET_ENDINGS)
        } | {name: token for name, file in files.items() if (token := _read(file))}

    def values(self) -> Mapping[str, str]:
        return self._values


def _read(file: Path) -> str:
    try:
        with file.open("rb") as stream:
            return stream.read(_TOKEN_LIMIT_BYTES).decode("utf-8", "replace").strip()
    except OSError:
        return ""
