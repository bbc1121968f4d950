"""The routes about memories that agents share: the list, making one, and to which agents it is attached."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import Response

from lodger_hub.api.bodies import answer, parse_body, read_body
from lodger_hub.errors import RequestRefused
from lodger_hub.git_host.app import Allowed, GitHost
from lodger_hub.git_host.deleted import KEPT_DAYS
from lodger_hub.git_host.grants import Right
from lodger_hub.git_host.repositories import GitMissing, TooManyRepositories
from lodger_hub.git_host.sharing import BadAgentsFile, NotShared, StillThere, TooManyAttached

_BODY_BYTES: Final = 4096
_OWN: Final = "memory"
"""The name under which an agent's own memory stands in its list."""


class NewRepositoryBody(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)

    name: str = Field(max_length=1024)


class AttachBody(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)

    permissions: Literal["read", "write"] = "write"


@dataclass(frozen=True, slots=True)
class RepositoryRoutes:
    """The handlers. The gate has admitted the caller before any of them runs."""

    memory: GitHost
    changed: Callable[[str], None]
    """Told the agent for which other memories count from now on."""

    async def of_agent(self, request: Request) -> Response:
        """CONTROL-PLANE-REST.md section 9; to machines and clients that may read the agent's memory. The heads are for
        machines that were away when word of a new one went out."""
        agent_id = request.path_params["agent_id"]
        if not isinstance(await self.memory.allows(request.scope, agent_id), Allowed):
            raise RequestRefused(404, "not_found", f"there is no agent {agent_id[:120]} here for this caller")
        return answer({"repositories": await asyncio.to_thread(self._of_agent, agent_id)})

    def _of_agent(self, agent_id: str) -> list[dict[str, object]]:
        try:
            head = self.memory.head(agent_id)
        except ValueError:
            head = None
        found = [_listed(agent_id, _OWN, Right.WRITE, head, is_primary=True)]
        for name, right in self.memory.sharing.of_agent(agent_id).items():
            found.append(_listed(name, name, right, self.memory.shared_head(name), is_primary=False))
        return found

    async def list(self, request: Request) -> Response:
        found = await asyncio.to_thread(self.memory.sharing.list)
        return answer(
            {
                "repositories": [
                    {
                        "id": one.name,
                        "name": one.name,
                        "agents": [
                            {"agent_id": agent_id, "permissions": right.value}
                            for agent_id, right in sorted(one.agents.items())
                        ],
                    }
                    for one in found
                ]
            }
        )

    async def create(self, request: Request) -> Response:
        name = parse_body(NewRepositoryBody, await read_body(request, _BODY_BYTES), "invalid_repository").name
        try:
            made = await asyncio.to_thread(self.memory.sharing.create, name)
        except ValueError as error:
            raise RequestRefused(400, "invalid_name", f"{name[:80]}: {error}") from error
        except TooManyRepositories as error:
            raise RequestRefused(409, "too_many", str(error)) from error
        except (GitMissing, OSError) as error:
            raise RequestRefused(503, "not_made", f"the shared memory cannot be made: {error}") from error
        return answer({"id": name, "name": name, "made": made}, 201 if made else 200)

    async def delete(self, request: Request) -> Response:
        """The hub keeps it for a time; `restore` undoes it until then."""
        name = request.path_params["name"]
        agents = await self._move(name, self.memory.delete_shared)
        return answer({"name": name, "agents": [*agents], "kept_days": KEPT_DAYS})

    async def restore(self, request: Request) -> Response:
        name = request.path_params["name"]
        agents = await self._move(name, self.memory.bring_back_shared)
        return answer({"name": name, "agents": [*agents]})

    async def _move(self, name: str, move: Callable[[str], tuple[str, ...]]) -> tuple[str, ...]:
        try:
            agents = await asyncio.to_thread(move, name)
        except ValueError as error:
            raise RequestRefused(400, "invalid_name", f"{name[:80]}: {error}") from error
        except NotShared as error:
            raise RequestRefused(404, "not_shared", str(error)) from error
        except StillThere as error:
            raise RequestRefused(409, "still_there", str(error)) from error
        except TooManyRepositories as error:
            raise RequestRefused(409, "too_many", str(error)) from error
        except OSError as error:
            raise RequestRefused(503, "not_moved", f"{name} cannot be moved: {error}") from error
        for agent_id in agents:
            self.changed(agent_id)
        return agents

    async def attach(self, request: Request) -> Response:
        body = parse_body(AttachBody, await read_body(request, _BODY_BYTES) or b"{}", "invalid_permissions")
        return await self._put(request, Right(body.permissions))

    async def detach(self, request: Request) -> Response:
        return await self._put(request, Right.NONE)

    async def _put(self, request: Request, right: Right) -> Response:
        name, agent_id = request.path_params["name"], request.path_params["agent_id"]
        try:
            await asyncio.to_thread(self.memory.sharing.attach, name, agent_id, right)
        except ValueError as error:
            raise RequestRefused(400, "invalid_agent", str(error)) from error
        except NotShared as error:
            raise RequestRefused(404, "not_shared", str(error)) from error
        except TooManyAttached as error:
            raise RequestRefused(409, "too_many", str(error)) from error
        except (BadAgentsFile, OSError) as error:
            raise RequestRefused(503, "not_written", f"who has {name} cannot be written: {error}") from error
        self.changed(agent_id)
        return answer({"name": name, "agent_id": agent_id, "permissions": right.value})


def _listed(id_: str, name: str, right: Right, head: str | None, *, is_primary: bool) -> dict[str, object]:
    return {"id": id_, "name": name, "permissions": right.value, "is_primary": is_primary, "head": head}
