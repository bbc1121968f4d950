"""The hub's routes, each with the class of caller it is for, behind one gate."""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount, Route, Router, WebSocketRoute
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket

from lodger_hub.access.core.credentials import AuthClass
from lodger_hub.access.gate import Gate, refuse
from lodger_hub.api.bodies import answer
from lodger_hub.api.devices import DeviceRoutes
from lodger_hub.api.environments import Environments
from lodger_hub.api.mailbox import MailboxRoutes
from lodger_hub.api.ports import PortRoutes
from lodger_hub.api.repositories import RepositoryRoutes
from lodger_hub.errors import RequestRefused, StoreFailed
from lodger_hub.git_host.app import GitHost
from lodger_hub.pages.site import Site

logger = logging.getLogger(__name__)

Handler = Callable[[Request], Awaitable[Response]]
SocketHandler = Callable[[WebSocket], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class GuardedRoute:
    """One line of the route table. There is no way to add a route that has no class."""

    path: str
    needed: AuthClass
    methods: frozenset[str]
    """Empty for a socket or a mount."""
    route: BaseRoute


@dataclass(frozen=True, slots=True)
class Handlers:
    """What the routes lead to."""

    environments: Environments
    devices: DeviceRoutes
    mailbox: MailboxRoutes
    site: Site
    memory: GitHost
    repositories: RepositoryRoutes
    ports: PortRoutes


def routes(handlers: Handlers, gate: Gate) -> tuple[GuardedRoute, ...]:
    """Every route of the hub, in the order they are looked at. Environment routes go without a final slash, agent
    routes with one; both are taken (CONTROL-PLANE-REST.md section 1)."""

    async def health(_: Request) -> Response:
        return answer({"ok": True})

    async def list_agents(request: Request) -> Response:
        agents = await handlers.memory.agents_for(request.scope)
        return answer([{"id": agent_id, "name": agent_id} for agent_id in agents])

    environments, devices, mailbox = handlers.environments, handlers.devices, handlers.mailbox
    repositories, ports = handlers.repositories, handlers.ports
    http: tuple[tuple[str, str, AuthClass, Handler], ...] = (
        ("GET", "/healthz", AuthClass.PUBLIC, health),
        ("POST", "/v1/environments/register", AuthClass.MACHINE, environments.register),
        ("GET", "/v1/environments", AuthClass.EITHER, environments.list),
        ("GET", "/v1/environments/{device_id}", AuthClass.EITHER, environments.one),
        ("GET", "/v1/agents", AuthClass.EITHER, list_agents),
        ("GET", "/v1/agents/{agent_id}/repositories", AuthClass.EITHER, repositories.of_agent),
        ("GET", "/v1/repositories", AuthClass.CLIENT, repositories.list),
        ("POST", "/v1/repositories", AuthClass.CLIENT, repositories.create),
        ("DELETE", "/v1/repositories/{name}", AuthClass.OWNER, repositories.delete),
        ("POST", "/v1/repositories/{name}/restore", AuthClass.OWNER, repositories.restore),
        ("PUT", "/v1/repositories/{name}/agents/{agent_id}", AuthClass.CLIENT, repositories.attach),
        ("DELETE", "/v1/repositories/{name}/agents/{agent_id}", AuthClass.CLIENT, repositories.detach),
        ("POST", "/v1/pairings", AuthClass.OWNER, devices.make_code),
        ("POST", "/v1/pair", AuthClass.PUBLIC, devices.pair),
        ("GET", "/v1/devices", AuthClass.CLIENT, devices.list),
        ("DELETE", "/v1/devices/{device_id}", AuthClass.CLIENT, devices.revoke),
        ("POST", "/v1/devices/{device_id}/rotate", AuthClass.CLIENT, devices.rotate),
        ("POST", "/v1/machines/{device_id}/mailbox", AuthClass.CLIENT, mailbox.post),
        ("POST", "/v1/machines/{device_id}/release", AuthClass.OWNER, environments.release),
        ("GET", "/v1/machines/{device_id}/mailbox", AuthClass.CLIENT, mailbox.sent),
        ("DELETE", "/v1/machines/{device_id}/mailbox/{client_message_id}", AuthClass.CLIENT, mailbox.take_back),
        ("POST", "/v1/ports/{share_id}/entries", AuthClass.CLIENT, ports.enter),
    )
    sockets: tuple[tuple[str, AuthClass, SocketHandler], ...] = (
        ("/v1/environments/ws", AuthClass.MACHINE, environments.machine_socket),
        ("/v1/environments/{connection_id}/status/ws", AuthClass.CLIENT, environments.client_socket),
        ("/v1/ports/ws", AuthClass.MACHINE, ports.machine_socket),
        ("/v1/ports/streams/{stream_id}/ws", AuthClass.MACHINE, ports.stream_socket),
    )
    table: list[GuardedRoute] = []
    for bare in dict.fromkeys(line[1] for line in http):
        lines = [(method, needed, handler) for method, path, needed, handler in http if path == bare]
        apps = {method: gate.guard(_http(method, handler), needed) for method, needed, handler in lines}
        for path in (bare, f"{bare}/"):
            route = _http_route(path, _by_method(apps))
            table += [GuardedRoute(path, needed, frozenset({method}), route) for method, needed, _ in lines]
    table += [
        GuardedRoute(path, needed, frozenset(), _socket_route(path, gate.guard(_socket(handler), needed)))
        for path, needed, handler in sockets
    ]
    guarded = gate.guard(handlers.memory, AuthClass.GIT)
    table.append(GuardedRoute("/v1/git", AuthClass.GIT, frozenset(), Mount("/v1/git", guarded)))
    return (*table, *_page_routes(handlers.site, gate))


def _page_routes(site: Site, gate: Gate) -> list[GuardedRoute]:
    """Last, so that nothing of the API can be hidden by a file; what is unknown below /v1 stays unknown."""
    app = gate.guard(_http("GET", site.page), AuthClass.PUBLIC)

    async def page(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/v1" or scope["path"].startswith("/v1/"):
            await _not_found(scope, receive, send)
        else:
            await app(scope, receive, send)

    return [
        GuardedRoute(path, AuthClass.PUBLIC, frozenset({"GET"}), _http_route(path, page))
        for path in ("/", "/{path:path}")
    ]


def hub_app(table: Sequence[GuardedRoute], gate: Gate) -> ASGIApp:
    """The whole application."""
    # Lines of one path share their route.
    distinct = list({id(line.route): line.route for line in table}.values())
    router = Router(distinct, redirect_slashes=False, default=_not_found)
    return gate.front(router)


async def _not_found(scope: Scope, receive: Receive, send: Send) -> None:
    await refuse(scope, receive, send, RequestRefused(404, "not_found", "there is nothing at this address"))


class _AsgiEndpoint:
    """Keeps the framework from taking an ASGI function for a request handler."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)


def _http_route(path: str, app: ASGIApp) -> Route:
    # The method is checked behind the gate, so that a stranger learns nothing from the difference.
    return Route(path, _AsgiEndpoint(app), methods=None)


def _by_method(apps: Mapping[str, ASGIApp]) -> ASGIApp:
    """The app of the method asked for; for any other the first, which refuses it behind its gate."""
    first = next(iter(apps.values()))

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await apps.get(scope["method"], first)(scope, receive, send)

    return app


def _socket_route(path: str, app: ASGIApp) -> WebSocketRoute:
    return WebSocketRoute(path, _AsgiEndpoint(app))


def _http(method: str, handler: Handler) -> ASGIApp:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        try:
            if scope["method"] not in (method, "HEAD" if method == "GET" else method):
                raise RequestRefused(405, "wrong_method", f"only {method} works here", {"Allow": method})
            response = await handler(Request(scope, receive, send))
        except RequestRefused as error:
            await refuse(scope, receive, send, error)
        except StoreFailed as error:
            logger.error("%s", error)
            failure = RequestRefused(503, "store_failed", "the hub cannot use its store; its log says why")
            await refuse(scope, receive, send, failure)
        else:
            await response(scope, receive, send)

    return app


def _socket(handler: SocketHandler) -> ASGIApp:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await handler(WebSocket(scope, receive, send))

    return app
