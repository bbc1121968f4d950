"""The rooms of the daemon, each made once and warmed, with how each is stopped."""

import asyncio
import contextlib
import platform
from dataclasses import dataclass
from pathlib import Path

from lodger_daemon.backends.local.history_tool import HistoryTool
from lodger_daemon.backends.local.search import HistorySearch
from lodger_daemon.clients.external_tools import ExternalToolRegistry
from lodger_daemon.memory.memory import Memory
from lodger_daemon.models.gateway import Models
from lodger_daemon.network.audit import NetworkAudit
from lodger_daemon.network.network import Network
from lodger_daemon.network.ssh_agent import lend_agent
from lodger_daemon.notifications.delivery import Delivery
from lodger_daemon.notifications.tasks import Tasks
from lodger_daemon.ports.ports import Ports
from lodger_daemon.ports.sharing import HubShares
from lodger_daemon.questions.questions import QuestionBook
from lodger_daemon.randomness import SystemRng
from lodger_daemon.service.box_watchers import BoxWatchers
from lodger_daemon.service.folder_boxes import FolderBoxes
from lodger_daemon.service.foundation import Foundation
from lodger_daemon.service.link import Hub
from lodger_daemon.service.memory_hosts import make_memory
from lodger_daemon.service.options import DaemonOptions
from lodger_daemon.service.own_secrets import OwnSecrets
from lodger_daemon.service.persons_hosts import PersonsHosts
from lodger_daemon.service.persons_ports import PersonsPorts
from lodger_daemon.service.persons_rules import PersonsRules
from lodger_daemon.service.sandbox_check import SandboxCheck
from lodger_daemon.service.workplaces import Workplaces
from lodger_daemon.spend.price_list import PriceList
from lodger_daemon.spend.spend import Spend
from lodger_daemon.turns.conductor import Conversations
from lodger_daemon.turns.services import TurnOptions, TurnServices
from lodger_daemon.workspace_guard.audit import GuardAudit
from lodger_daemon.workspace_guard.git_guard import GitGuard
from lodger_daemon.workspace_guard.guarded_boxes import GuardedBoxes
from lodger_tools import validator
from lodger_tools.box.manager import BoxManager
from lodger_tools.output.overflow import OverflowFolder, OverflowOwner
from lodger_tools.toolbox import LodgerToolbox
from lodger_tools.toolbox_background import BackgroundToolbox


@dataclass(frozen=True, slots=True)
class Rooms:
    """The rooms of a running daemon that its start and its links need."""

    conversations: Conversations
    memory: Memory
    models: Models
    spend: Spend
    boxes: BoxManager
    questions: QuestionBook
    external: ExternalToolRegistry
    rules: PersonsRules
    overflow: OverflowFolder
    folders: FolderBoxes
    workplaces: Workplaces
    history: HistorySearch
    network: Network
    tasks: Tasks
    ports: Ports
    shares: HubShares


async def make_rooms(
    options: DaemonOptions,
    foundation: Foundation,
    hub: Hub | None,
    sandbox: SandboxCheck,
    stack: contextlib.AsyncExitStack,
) -> Rooms:
    """Make and warm every room, and put on the stack how each is stopped. Raises: ValueError for unusable settings."""
    settings, clock, rng, paths = foundation.settings, foundation.clock, SystemRng(), options.paths
    requests = foundation.requests
    models = await _start_models(options, foundation, stack)
    spend = Spend(
        foundation.database,
        clock,
        settings.spend.limits(),
        PriceList(settings.spend.own_prices(), models.billing, models.listed_rates),
    )
    network, network_audit = await _start_network(options, foundation, stack)
    ports, shares = _make_ports(foundation, hub, models, stack)
    overflow = OverflowFolder(paths.overflow, OverflowOwner(*owner) if (owner := requests.owner()) else None)
    boxes = BoxManager(
        paths.boxes,
        lambda key: sandbox.unless_it_leaks(requests.for_key, key, overflow),
        extra_folders=((str(Path(validator.__file__).parent), "validator"),),
        watcher=BoxWatchers(network, ports),
    )
    memory = make_memory(options, settings, hub, boxes, requests, foundation.workspace, clock, rng)
    stack.push_async_callback(memory.aclose)
    own_secrets = await asyncio.to_thread(
        OwnSecrets, paths, options.environment, hub.token_file if hub is not None else None
    )
    questions = QuestionBook(foundation.database, clock, settings.questions.expire_after_s)
    await questions.load()
    rules = PersonsRules(foundation.settings_file, settings, str(paths.home))
    external = ExternalToolRegistry(rng)
    history = HistorySearch(paths.search, foundation.database, clock)
    stack.push_async_callback(history.aclose)
    guard_audit = GuardAudit(foundation.audit)
    boxed = GuardedBoxes(boxes, GitGuard(boxes, paths.state / "guard", rng, guard_audit))
    toolbox = LodgerToolbox(
        boxed, overflow, hidden_of=own_secrets.values, network=network, checkout=requests.memory_inside
    )
    delivery = Delivery(foundation.database, clock)
    tasks = Tasks(foundation.database, BackgroundToolbox(toolbox, boxed), clock, settings.shell.foreground_s, delivery)
    folders = FolderBoxes(boxes, rng)
    workplaces = Workplaces(boxes, folders, clock, tasks)
    services = TurnServices(
        database=foundation.database,
        questions=questions,
        models=models,
        toolbox=toolbox,
        memory=memory,
        external=HistoryTool(external, history, foundation.database),
        judge=rules,
        clock=clock,
        rng=rng,
        memory_directory=lambda _: requests.memory_inside,
        options=_turn_options(options, foundation),
        places=workplaces,
        spend=spend,
        hosts=PersonsHosts(foundation.settings_file, settings, network.allow),
        tasks=tasks,
        refusal_of=requests.refusal_of,
    )
    conversations = Conversations(services)
    delivery.to(conversations)
    boxed.let_ask(conversations.git_asker)
    for audit in (network_audit, guard_audit):
        audit.learn_from(conversations.network_asker.work_in, tasks.work_in)
    # In this order, so that the calls of stopped turns go on in their boxes and the next daemon collects them.
    stack.push_async_callback(conversations.aclose, boxes.leave)
    stack.push_async_callback(workplaces.aclose)
    stack.push_async_callback(tasks.aclose)
    return Rooms(
        conversations, memory, models, spend, boxes, questions, external, rules, overflow, folders, workplaces, history,
        network, tasks, ports, shares,
    )  # fmt: skip


async def _start_network(
    options: DaemonOptions, foundation: Foundation, stack: contextlib.AsyncExitStack
) -> tuple[Network, NetworkAudit]:
    audit = NetworkAudit(foundation.audit, foundation.clock)
    allow = foundation.settings.network.allow_list()
    place, owner = options.paths.state / "egress", foundation.requests.owner
    network = Network(place, allow, owner, audit.note, foundation.clock)
    stack.push_async_callback(network.aclose)
    await network.start()
    if foundation.settings.network.ssh_agent:
        requests, agent = foundation.requests, options.environment.get("SSH_AUTH_SOCK", "")
        await lend_agent(stack, requests.ssh, agent, requests.user)
    return network, audit


def _make_ports(
    foundation: Foundation, hub: Hub | None, models: Models, stack: contextlib.AsyncExitStack
) -> tuple[Ports, HubShares]:
    rules, asks = PersonsPorts(foundation.settings_file, foundation.settings), foundation.settings.ports.ask
    hubs, note = () if hub is None else (hub.url,), foundation.audit.note
    ports = Ports(rules, foundation.clock, note, asks=asks, spoken_to=lambda: (*hubs, *models.addresses()))
    models.let_make_way(ports.leave)
    stack.push_async_callback(ports.aclose)
    shares = HubShares(ports, None if hub is None else hub.address())
    stack.push_async_callback(shares.aclose)
    return ports, shares


async def _start_models(options: DaemonOptions, foundation: Foundation, stack: contextlib.AsyncExitStack) -> Models:
    """Raises: ValueError for unusable settings."""
    settings = foundation.settings
    providers = {
        name: provider.model_dump(mode="json", exclude_unset=True) for name, provider in settings.providers.items()
    }
    models = Models(options.paths, foundation.clock, providers, options.environment, settings.model.default)
    stack.push_async_callback(models.aclose)
    await models.start()
    return models


def _turn_options(options: DaemonOptions, foundation: Foundation) -> TurnOptions:
    return TurnOptions(
        workspace=str(foundation.workspace),
        home=str(options.paths.home),
        machine_name=foundation.name,
        operating_system=f"{platform.system()} {platform.release()}",
        default_mode=foundation.settings.permissions.mode,
        ceiling=foundation.settings.permissions.ceiling,
    )
