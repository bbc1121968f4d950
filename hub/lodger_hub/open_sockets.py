"""Every kind of connection that a device's token opened, as those who revoke it see them."""

from dataclasses import dataclass

from lodger_hub.ports.shares import Shares
from lodger_hub.relay.switchboard import Switchboard


@dataclass(frozen=True, slots=True)
class OpenSockets:
    switchboard: Switchboard
    shares: Shares

    def end_token(self, token_id: str) -> None:
        self.switchboard.end_token(token_id)
        self.shares.end_token(token_id)

    def announce_revoked(self, device_id: str) -> None:
        self.switchboard.announce_revoked(device_id)
