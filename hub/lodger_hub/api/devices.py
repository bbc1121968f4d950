"""The routes about devices: pairing codes, pairing, the list, revoking, rotating."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from lodger_hub.access.core.pairing import CODE_LIFE_S, shown_code
from lodger_hub.access.devices import Devices
from lodger_hub.access.gate import caller_of, source_of
from lodger_hub.access.tokens import own_device_id
from lodger_hub.api.bodies import PairBody, PairingBody, answer, parse_body, read_body
from lodger_hub.reach import Reach
from lodger_hub.store.contract import Device

PAIR_BODY_BYTES: Final = 4096


@dataclass(frozen=True, slots=True)
class DeviceRoutes:
    """The handlers. The gate has admitted the caller before any of them runs."""

    devices: Devices
    reach: Callable[[], Reach]
    """Where the hub can be reached; known once it listens."""

    async def make_code(self, request: Request) -> Response:
        """The code, and for each address of the page a link that carries it in the fragment, which browsers send to
        nobody."""
        body = await read_body(request, PAIR_BODY_BYTES)
        role = parse_body(PairingBody, body or b"{}", "invalid_pairing").role
        made = await self.devices.make_code(source_of(request), role)
        shown = shown_code(made.code)
        reach = self.reach()
        links = [{"reach": place.kind.value, "url": f"{place.url}/#pair={shown}"} for place in reach.places]
        return answer(
            {
                "code": shown,
                "role": role.value,
                "expires_at": made.expires_at_ms,
                "expires_in_s": CODE_LIFE_S,
                "links": links,
                "fingerprint": reach.fingerprint,
            },
            201,
        )

    async def pair(self, request: Request) -> Response:
        body = parse_body(PairBody, await read_body(request, PAIR_BODY_BYTES), "invalid_pairing")
        paired = await self.devices.pair(body.code, body.name, source_of(request))
        device = paired.device
        given = {"token": paired.token, "device_id": device.id, "name": device.name, "role": device.role.value}
        return answer(given, 201)

    async def list(self, request: Request) -> Response:
        caller = caller_of(request)
        return answer({"devices": [_shown(device, caller.device_id) for device in await self.devices.list()]})

    async def revoke(self, request: Request) -> Response:
        await self.devices.revoke(request.path_params["device_id"], source_of(request))
        return answer({"revoked": True})

    async def rotate(self, request: Request) -> Response:
        device_id = request.path_params["device_id"]
        token = await self.devices.rotate(device_id, caller_of(request), source_of(request))
        return answer({"device_id": device_id, "token": token})


def _shown(device: Device, caller_id: str) -> dict[str, object]:
    return {
        "id": device.id,
        "name": device.name,
        "role": device.role.value,
        "paired_at": device.paired_at_ms,
        "last_seen_at": device.last_seen_at_ms,
        "is_own": device.id == own_device_id(device.role),
        "is_caller": device.id == caller_id,
    }
