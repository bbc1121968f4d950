"""The daemon's one door to models: which exist, which is the default, and one step of any of them."""

import asyncio
import json
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from pydantic_core import to_json

from lodger_daemon.clock import Clock
from lodger_daemon.models.contract import (
    FailureKind,
    ModelChunk,
    ModelFailure,
    ModelInfo,
    ModelRequest,
    ProviderStatus,
    StepEnded,
)
from lodger_daemon.models.core.billing import Billing, billing_of
from lodger_daemon.models.core.catalogue import entry, first_model, models_of
from lodger_daemon.models.core.dialects import encode
from lodger_daemon.models.core.frames import ListedModel
from lodger_daemon.models.core.providers import (
    KNOWN,
    LISTS_PRICES,
    LITELLM_PREFIX,
    LOCAL_SERVERS,
    Dialect,
    Provider,
    split_handle,
    worker_environment,
)
from lodger_daemon.models.discovery import is_trusted
from lodger_daemon.models.keys import KeyRefused, KeyStore
from lodger_daemon.models.outcomes import Outcomes
from lodger_daemon.models.practice_process import PracticeProcess
from lodger_daemon.models.registry import PRACTICE, PRACTICE_MODEL, Registry, place_in_words
from lodger_daemon.models.worker_link import WorkerLink
from lodger_daemon.paths import Paths
from lodger_tools.json_value import JsonObject

_PROBE_AGAIN_AFTER_S: Final = 60.0
_PROBE_LIMIT_S: Final = 3.0
"""Of the start of a worker on a busy machine and an answer over loopback, which comes within milliseconds."""
_ASK_AGAIN_AFTER_S: Final = 30.0
"""A provider that did not list its models is left alone for so long: the answer may take seconds to fail again."""
_DESCRIPTION_WAIT_S: Final = 3.0
"""What a description may wait for a provider's list: the start of a worker on a busy machine, then milliseconds."""
_LITELLM_START_LIMIT_S: Final = 60.0
"""Its import takes 4 to 12 s (ECOSYSTEM.md section 2), more on a busy machine."""
_LITELLM_IDLE_LIMIT_S: Final = 600.0
"""It holds 240 MB while it does nothing; ten minutes are longer than most pauses within a conversation."""
_LITELLM_LIMIT_BYTES: Final = 600 * 1024 * 1024
_LEAN_LIMIT_BYTES: Final = 200 * 1024 * 1024
"""Ten times what it needs (measured: 21 MiB after 20 streams at once)."""


class Models:
    """Implements `ModelGateway`.

    Args:
        settings: providers of the person's settings, name to `base_url`, `dialect`, `models`, `context_window`.
        environment: the variables providers may be taken from; never read from the process itself.
        default: the handle the settings name; empty for the usual order.
        local_servers: where to look for servers on this machine; empty looks nowhere.

    Raises:
        ValueError: for settings that name no usable provider, in words for the person.
    """

    def __init__(
        self,
        paths: Paths,
        clock: Clock,
        settings: Mapping[str, Mapping[str, object]],
        environment: Mapping[str, str],
        default: str = "",
        local_servers: Mapping[str, str] = LOCAL_SERVERS,
    ) -> None:
        self._clock = clock
        self._default = default
        self._local_servers = dict(local_servers)
        self._registry = Registry(settings, environment, paths.config / "providers.json")
        self._make_way: Callable[[Iterable[str]], Awaitable[None]] | None = None
        self._keys = KeyStore(paths.secrets, environment)
        self._lean = WorkerLink(
            "lodger_daemon.models.worker",
            paths.secrets,
            worker_environment(environment, Dialect.OPENAI),
            clock,
            memory_limit_bytes=_LEAN_LIMIT_BYTES,
        )
        self._litellm = WorkerLink(
            "lodger_daemon.models.litellm_worker",
            paths.secrets,
            worker_environment(environment, Dialect.LITELLM),
            clock,
            start_limit_s=_LITELLM_START_LIMIT_S,
            idle_limit_s=_LITELLM_IDLE_LIMIT_S,
            memory_limit_bytes=_LITELLM_LIMIT_BYTES,
        )
        self._practice = PracticeProcess()
        self.outcomes = Outcomes(clock)
        self._listed: dict[str, tuple[ListedModel, ...]] = {}
        self._reachable: dict[str, str] = {}
        """Provider to what was wrong when it was last asked; empty text when it answered."""
        self._refused_at: dict[str, float] = {}
        self._windows: dict[str, int] = {}
        """Handle to what its provider said it reads when it refused a longer request."""
        self._listings: dict[str, asyncio.Task[tuple[ListedModel, ...]]] = {}
        self._probed_at = float("-inf")
        self._probe: asyncio.Task[None] | None = None
        self._warming: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Warm the lean worker and look for local servers, both in the background; returns at once."""
        self._warming = asyncio.create_task(self._warm())
        self._start_probe()

    async def aclose(self) -> None:
        """End every process of this room."""
        for task in (self._warming, self._probe, *self._listings.values()):
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        await asyncio.gather(self._lean.aclose(), self._litellm.aclose(), self._practice.aclose())

    def let_make_way(self, make_way: Callable[[Iterable[str]], Awaitable[None]]) -> None:
        """
        Args:
            make_way: called with the address of a provider before it is connected: what listens there for somebody
                else, with this daemon's help, would be sent the key.
        """
        self._make_way = make_way

    def addresses(self) -> tuple[str, ...]:
        """Where providers are spoken to, and where servers of this machine would be found."""
        return (*self._local_servers.values(), *(one.base_url for one in self._registry.all().values()))

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelChunk, None]:
        """Run one step. Raises: ModelFailure. Closing the generator closes the request at the provider."""
        name, model = split_handle(request.handle)
        provider = await self._provider(name)
        if provider is None or not model:
            raise ModelFailure(
                FailureKind.UNKNOWN_MODEL,
                f"No connected provider serves {request.handle!r}. `lodger models` lists what there is; "
                "`lodger connect` adds a provider, and `--model HANDLE` changes the agent's model.",
            )
        if provider.source == "found" and not await self._is_trusted(provider.base_url):
            # Whoever listens there now is not whom we found.
            raise ModelFailure(
                FailureKind.NETWORK,
                f"{name} at {provider.base_url} is gone, or another user of this machine has its port.",
            )
        body = _on_one_line(encode(request, provider, model))
        link = self._litellm if provider.dialect is Dialect.LITELLM else self._lean
        chunks = link.step(provider, model, body)
        try:
            async for chunk in chunks:
                if isinstance(chunk, StepEnded):
                    self.outcomes.succeeded(request.handle)
                yield chunk
        except ModelFailure as failure:
            self.outcomes.failed(request.handle, failure)
            if failure.context_window is not None:
                self._windows[request.handle] = failure.context_window
            raise _with_advice(failure, name) from None
        finally:
            await chunks.aclose()

    async def default_handle(self) -> str:
        if self._default:
            return self._default
        for provider in self._registry.all().values():
            if provider.source != "found" and (handle := await self._first_of(provider)):
                return handle
        await self._probe_done()
        for provider in self._registry.all().values():
            if provider.source == "found" and (handle := await self._first_of(provider)):
                return handle
        return f"{PRACTICE}/{PRACTICE_MODEL}"

    async def list_models(self, refresh: bool = False) -> tuple[ModelInfo, ...]:
        if refresh:
            self._listed.clear()
            self._refused_at.clear()
            self._probed_at = float("-inf")
        self._start_probe()
        await self._probe_done()
        providers = list(self._registry.all().values())
        await asyncio.gather(*(self._list(provider) for provider in providers))
        default = await self.default_handle()
        found = [
            entry(provider, model, place_in_words(provider.source), handle == default, self._windows.get(handle, 0))
            for provider in providers
            for model in models_of(provider, self._listed.get(provider.name, ()))
            if (handle := f"{provider.name}/{model.name}")
        ]
        return (*found, _practice_entry(default))

    async def describe(self, handle: str) -> ModelInfo | None:
        name, model = split_handle(handle)
        if name == PRACTICE:
            return _practice_entry("") if model == PRACTICE_MODEL else None
        provider = self._registry.get(name)
        if provider is None:
            await self._probe_done()
            provider = self._registry.get(name)
        if provider is None or not model:
            return None
        if provider.is_loopback or name not in KNOWN or name in LISTS_PRICES:
            await self._listed_soon(provider)
        listed = next((m for m in self._listed.get(name, ()) if m.name == model), ListedModel(model))
        learned = self._windows.get(handle, 0)
        return entry(provider, listed, place_in_words(provider.source), learned_window=learned)

    async def connect(self, provider: str, fields: dict[str, str]) -> None:
        """Store a provider's address and key on this machine.

        Args:
            fields: `api_key`, `base_url`, `dialect`, `models` (comma-separated); what a known provider needs is its
                key only, `openai-compatible` needs an address.

        Raises:
            ValueError: in words for the person.
        """
        known = KNOWN.get(provider)
        key = fields.get("api_key", "").strip()
        if known and known.dialect is not Dialect.LITELLM and not key and not fields.get("base_url"):
            raise ValueError(
                f"Connecting {provider} needs a key: type it when asked, or name its file with --api-key-file."
            )
        made = _with_fields(provider, fields)
        if self._make_way is not None:
            await self._make_way((made.base_url,))
        try:
            await asyncio.to_thread(self._store, provider, fields, key)
        except (KeyRefused, OSError) as refused:
            raise ValueError(str(refused)) from None
        self._renew(provider)

    async def disconnect(self, provider: str) -> bool:
        try:
            dropped = await asyncio.to_thread(self._registry.drop, provider)
            forgotten = await asyncio.to_thread(self._keys.forget, provider)
        except (KeyRefused, OSError) as refused:
            raise ValueError(str(refused)) from None
        self._renew(provider)
        return dropped or forgotten

    async def providers(self) -> tuple[ProviderStatus, ...]:
        statuses = []
        for provider in self._registry.all().values():
            source = await asyncio.to_thread(self._keys.source, provider.name, provider.key_variables)
            trouble = self._reachable.get(provider.name)
            statuses.append(
                ProviderStatus(
                    name=provider.name,
                    base_url=provider.base_url,
                    reachable=None if trouble is None else not trouble,
                    key_from=source,
                    detail=trouble or place_in_words(provider.source),
                )
            )
        words = "practice model: offline and rule-based, for trying Lodger without a real model"
        return (*statuses, ProviderStatus(PRACTICE, "", None, "none", words))

    def billing(self, handle: str) -> Billing | None:
        """By whose price list steps of this model are paid; None for one that no connected provider serves."""
        name, model = split_handle(handle)
        if name == PRACTICE:
            return Billing.OWN_MACHINE
        provider = self._registry.get(name)
        return billing_of(provider, model) if provider is not None else None

    def listed_rates(self, handle: str) -> tuple[int | None, ...]:
        """What the provider's own list says a token costs, as in `ListedModel`; empty where it says nothing."""
        name, model = split_handle(handle.removeprefix(LITELLM_PREFIX))
        return next((listed.rates for listed in self._listed.get(name, ()) if listed.name == model), ())

    def worker_pids(self) -> tuple[int, ...]:
        """Of the workers that run now, for status and measurements."""
        return tuple(pid for pid in (self._lean.pid, self._litellm.pid) if pid is not None)

    def _store(self, name: str, fields: Mapping[str, str], key: str) -> None:
        # The key first: an address without its key would be used without one.
        if key:
            self._keys.store(name, key)
        self._registry.store(name, fields)

    def _renew(self, name: str) -> None:
        self._listed.pop(name, None)
        self._windows = {handle: size for handle, size in self._windows.items() if split_handle(handle)[0] != name}
        self._reachable.pop(name, None)
        self._refused_at.pop(name, None)
        for link in (self._lean, self._litellm):
            link.forget(name)
            link.forget(LITELLM_PREFIX + name)

    async def _provider(self, name: str) -> Provider | None:
        if name == PRACTICE:
            base_url, token = await self._practice.address()
            return Provider(PRACTICE, base_url, Dialect.OPENAI, source="practice", bearer=token)
        provider = self._registry.get(name)
        if provider is None and name in self._local_servers:
            await self._probe_done()
            provider = self._registry.get(name)
        return provider

    async def _first_of(self, provider: Provider) -> str | None:
        model = first_model(provider, self._listed.get(provider.name, ()))
        if model is None:
            model = first_model(provider, await self._list(provider))
        return f"{provider.name}/{model}" if model else None

    async def _list(self, provider: Provider) -> tuple[ListedModel, ...]:
        """Ask a provider once; what it said is kept until a refresh."""
        if provider.name in self._listed or provider.dialect is Dialect.LITELLM:
            return self._listed.get(provider.name, ())
        if self._clock.mono() - self._refused_at.get(provider.name, float("-inf")) < _ASK_AGAIN_AFTER_S:
            return ()
        try:
            listed = await self._lean.list_models(provider)
        except ModelFailure as failure:
            self._reachable[provider.name] = failure.message
            self._refused_at[provider.name] = self._clock.mono()
            return ()
        self._reachable[provider.name] = ""
        self._listed[provider.name] = listed
        return listed

    async def _listed_soon(self, provider: Provider) -> None:
        """Wait for what the provider says of its models, not for long: then the table has to do."""
        if provider.name in self._listed:
            return
        listing = self._listings.get(provider.name)
        if listing is None or listing.done():
            listing = self._listings[provider.name] = asyncio.create_task(self._list(provider))
        await asyncio.wait({listing}, timeout=_DESCRIPTION_WAIT_S)

    async def _warm(self) -> None:
        try:
            await self._lean.start()
            if (await self.default_handle()).startswith(f"{PRACTICE}/"):
                await self._practice.address()
        except ModelFailure:
            # Whoever needs it next starts it again and is told.
            return

    def _start_probe(self) -> None:
        is_due = self._clock.mono() - self._probed_at > _PROBE_AGAIN_AFTER_S
        if is_due and (self._probe is None or self._probe.done()) and self._local_servers:
            self._probed_at = self._clock.mono()
            self._probe = asyncio.create_task(self._look_for_servers())

    async def _probe_done(self) -> None:
        self._start_probe()
        if self._probe is not None:
            await asyncio.shield(self._probe)

    async def _look_for_servers(self) -> None:
        servers = {name: url for name, url in self._local_servers.items() if await self._is_trusted(url)}
        answers = await asyncio.gather(*(self._ask_server(name, url) for name, url in servers.items()))
        found = {name: models for name, models in zip(servers, answers, strict=True) if models}
        self._registry.set_found({name: servers[name] for name in found})
        for name, models in found.items():
            provider = self._registry.get(name)
            if provider is not None and provider.source == "found":
                self._listed[name] = models
                self._reachable[name] = ""

    async def _ask_server(self, name: str, base_url: str) -> tuple[ListedModel, ...]:
        """What a server lists; nothing when it is none, or has nothing yet: the next probe asks again."""
        try:
            async with asyncio.timeout(_PROBE_LIMIT_S):
                return await self._lean.list_models(Provider(name, base_url, Dialect.OPENAI, source="found"))
        except (ModelFailure, TimeoutError):
            return ()

    async def _is_trusted(self, base_url: str) -> bool:
        return await asyncio.to_thread(is_trusted, base_url, os.geteuid())


def _with_advice(failure: ModelFailure, provider: str) -> ModelFailure:
    """A refused key is mended by its person only, so the words say how."""
    if failure.kind is not FailureKind.AUTHENTICATION:
        return failure
    return ModelFailure(
        failure.kind,
        f"{failure.message} (the key of {provider} was not accepted; `lodger connect {provider}` takes another)",
        status=failure.status,
        retry_after_s=failure.retry_after_s,
        output_seen=failure.output_seen,
    )


def _on_one_line(body: JsonObject) -> bytes:
    """A request as JSON. The quick way, 30 us where `json` takes 450, cannot say half a surrogate pair, which models do
    send, and gives up on what is nested very deeply."""
    try:
        return to_json(body)
    except ValueError:
        return json.dumps(body, separators=(",", ":")).encode()


def _practice_entry(default: str) -> ModelInfo:
    provider = Provider(PRACTICE, "", Dialect.OPENAI, source="practice")
    words = "practice model: " + place_in_words("practice")
    info = entry(provider, ListedModel(PRACTICE_MODEL), words, default == f"{PRACTICE}/{PRACTICE_MODEL}")
    return replace(info, label="practice model")


def _with_fields(name: str, fields: Mapping[str, str]) -> Provider:
    """As it will be. Raises: ValueError in words for the person."""
    chosen = {key: value for key, value in fields.items() if key in ("base_url", "dialect")}
    return Registry({name: chosen}, {}, Path()).all()[name]
