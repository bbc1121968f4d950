"""What can go wrong in a hub.

HubError
├── UnsafeListener      the address asked for would send tokens in the clear
├── BadAddress          an address or a name the hub was started with cannot be used
├── StateInUse          another hub uses the state folder
├── CertificateFailed   the hub's own certificate cannot be made or read
├── StoreFailed         the hub's own file cannot be read or written
└── RequestRefused      answered to the caller as JSON `{message, errorCode}`
"""

from pathlib import Path


class HubError(Exception):
    """Base of everything the hub raises on purpose."""


class UnsafeListener(HubError):
    def __init__(self, host: str) -> None:
        super().__init__(host)
        self.host = host

    def __str__(self) -> str:
        return (
            f"plain HTTP on {self.host} would send tokens in the clear: give a certificate and its key, "
            "listen on 127.0.0.1, or use --lan"
        )


class BadAddress(HubError):
    """The text says which and why."""


class StateInUse(HubError):
    def __init__(self, folder: Path, owner: str) -> None:
        super().__init__(folder, owner)
        self.folder = folder
        self.owner = owner

    def __str__(self) -> str:
        who = f" (process {self.owner})" if self.owner.isdecimal() else ""
        return f"another hub{who} uses {self.folder}: stop that one, or give this one a LODGER_HOME of its own"


class CertificateFailed(HubError):
    def __init__(self, folder: Path, reason: str) -> None:
        super().__init__(folder, reason)
        self.folder = folder
        self.reason = reason

    def __str__(self) -> str:
        return f"the hub's own certificate in {self.folder} cannot be used: {self.reason}"


class StoreFailed(HubError):
    def __init__(self, file: Path, reason: str) -> None:
        super().__init__(file, reason)
        self.file = file
        self.reason = reason

    def __str__(self) -> str:
        return f"the hub's store {self.file} cannot be used: {self.reason}"


class RequestRefused(HubError):
    """A request that ends here. The message is shown to people."""

    def __init__(self, status: int, code: str, message: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.headers = headers or {}

    def __str__(self) -> str:
        return self.message
