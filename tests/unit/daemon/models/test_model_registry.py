"""Which providers there are, where each comes from, and what `connect` changes."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from pathlib import Path

import pytest

from lodger_daemon.models.core.catalogue import first_model
from lodger_daemon.models.core.frames import ListedModel
from lodger_daemon.models.core.model_lists import listed_models
from lodger_daemon.models.core.providers import (
    Dialect,
    Provider,
    provider_from_settings,
    split_handle,
    tidy_url,
    worker_environment,
)
from lodger_daemon.models.core.windows import window_of
from lodger_daemon.models.gateway import Models
from lodger_daemon.models.registry import Registry
from lodger_daemon.paths import Paths
from lodger_daemon.system_clock import SystemClock
from support.endpoint_process import EndpointProcess, model_endpoint
from support.model_contract import collect, failure, scripted, texts


@pytest.fixture
async def endpoint() -> AsyncIterator[EndpointProcess]:
    with model_endpoint("--models", "alpha,beta") as running:
        yield running


def make(tmp_path: Path, *, environment: dict[str, str] | None = None, local: dict[str, str] | None = None) -> Models:
    paths = Paths(tmp_path / "config", tmp_path / "state", tmp_path / "work", tmp_path)
    return Models(paths, SystemClock(), {}, environment or {}, local_servers=local or {})


def test_addresses_are_tidied() -> None:
    assert tidy_url("http://host:1234/", Dialect.OPENAI) == "http://host:1234/v1"
    assert tidy_url("http://host/api/v1/chat/completions", Dialect.OPENAI) == "http://host/api/v1"
    assert tidy_url("https://host/v1/messages", Dialect.ANTHROPIC) == "https://host"
    with pytest.raises(ValueError, match="not an address"):
        tidy_url("host:1234", Dialect.OPENAI)


def test_handles_split_at_the_first_slash() -> None:
    assert split_handle("openrouter/a/b") == ("openrouter", "a/b")
    assert split_handle("litellm:gemini/x") == ("litellm:gemini", "x")
    assert split_handle("bare") == ("", "bare")


def test_settings_win_over_connected_over_environment_over_found(tmp_path: Path) -> None:
    file = tmp_path / "providers.json"
    environment = {"OPENAI_API_KEY": "x", "ANTHROPIC_API_KEY": "y", "GROQ_API_KEY": "z"}
    Registry({}, environment, file).store("anthropic", {"base_url": "http://stored"})
    registry = Registry({"openai": {"base_url": "http://set/v1"}}, environment, file)
    registry.set_found({"openai": "http://found/v1", "ollama": "http://found/v1"})
    assert [(p.name, p.base_url, p.source) for p in registry.all().values()] == [
        ("openai", "http://set/v1", "configured"),
        ("anthropic", "http://stored", "configured"),
        ("groq", "https://api.groq.com/openai/v1", "environment"),
        ("ollama", "http://found/v1", "found"),
    ]


@pytest.mark.parametrize("name", ["../x", "practice", "a/b", "", "Ü"])
def test_a_name_that_is_no_name_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="cannot be a provider's name"):
        Registry({}, {}, tmp_path / "p.json").store(name, {"base_url": "http://h/v1"})
    with pytest.raises(ValueError, match="needs a base_url"):
        provider_from_settings("mine", {})


def test_a_key_that_the_service_manager_hands_over_makes_its_provider_known(tmp_path: Path) -> None:
    handed = tmp_path / "credentials"
    handed.mkdir()
    for name in ("anthropic", "unheard-of"):
        (handed / name).write_text("key")
    known = Registry({}, {"CREDENTIALS_DIRECTORY": str(handed)}, tmp_path / "providers.json").all()
    assert list(known) == ["anthropic"]
    assert known["anthropic"].base_url == "https://api.anthropic.com"
    assert Registry({}, {"CREDENTIALS_DIRECTORY": "/nowhere"}, tmp_path / "providers.json").all() == {}


def test_a_worker_gets_little_of_the_environment() -> None:
    environment = {"PATH": "/bin", "OPENAI_API_KEY": "k", "AWS_PROFILE": "p", "SECRET": "s", "PERPLEXITY_API_KEY": "q"}
    assert worker_environment(environment, Dialect.OPENAI) == {
        "PATH": "/bin",
        "OPENAI_API_KEY": "k",
        "AWS_PROFILE": "p",
    }
    assert "SECRET" not in worker_environment(environment, Dialect.LITELLM)
    assert worker_environment(environment, Dialect.LITELLM)["PERPLEXITY_API_KEY"] == "q"


def test_windows_from_the_table_and_from_providers() -> None:
    assert window_of("anthropic/claude-sonnet-4.5").context_tokens == 200_000
    assert window_of("never-heard-of").context_tokens == 128_000
    rows = [{"id": "a", "context_length": 5}, {"id": "b", "meta": {"n_ctx_train": 9}}, {"id": "c"}, {"x": 1}]
    listed = listed_models({"data": list(rows)})
    assert listed == (ListedModel("a", 5), ListedModel("b"), ListedModel("c"))


def test_the_first_model_of_a_provider() -> None:
    openai = Provider("openai", "https://api.openai.com/v1", Dialect.OPENAI)
    assert first_model(openai, ()) == "gpt-5"
    assert first_model(openai, (ListedModel("tts"), ListedModel("gpt-5-2025-08-07"))) == "gpt-5-2025-08-07"
    elsewhere = Provider("openai", "http://127.0.0.1:1/v1", Dialect.OPENAI)
    assert (first_model(elsewhere, ()), first_model(elsewhere, (ListedModel("x"),))) == (None, "x")


async def test_a_local_server_is_found_and_becomes_the_default(tmp_path: Path, endpoint: EndpointProcess) -> None:
    models = make(tmp_path, local={"ollama": f"{endpoint.url}/v1", "lmstudio": "http://127.0.0.1:9/v1"})
    await models.start()
    assert await models.default_handle() == "ollama/alpha"
    assert [m.handle for m in await models.list_models()] == ["ollama/alpha", "ollama/beta", "practice/practice"]
    assert texts(await collect(models, scripted("ollama/beta", {"text": "hi"}))) == "hi"
    await models.aclose()


async def test_who_stands_in_the_way_is_told_before_a_provider_is_known(tmp_path: Path) -> None:
    models = make(tmp_path)
    told: list[tuple[tuple[str, ...], bool]] = []

    async def make_way(urls: Iterable[str]) -> None:
        told.append((tuple(urls), "http://127.0.0.1:9/v1" in models.addresses()))

    models.let_make_way(make_way)
    await models.connect("mine", {"base_url": "http://127.0.0.1:9/v1", "api_key": "sk-x"})
    assert told == [(("http://127.0.0.1:9/v1",), False)]
    assert "http://127.0.0.1:9/v1" in models.addresses()
    await models.aclose()


async def test_connect_works_at_once_and_after_a_restart(tmp_path: Path, endpoint: EndpointProcess) -> None:
    models = make(tmp_path)
    fields = {"base_url": f"{endpoint.url}/v1", "api_key": "sk-first"}
    await models.connect("openai-compatible", fields)
    assert await models.default_handle() == "openai-compatible/alpha"
    await collect(models, scripted("openai-compatible/alpha", {"text": "a"}))
    await models.connect("openai-compatible", {**fields, "api_key": "sk-second"})
    await collect(models, scripted("openai-compatible/alpha", {"text": "a"}))
    await models.aclose()
    again = make(tmp_path)
    await collect(again, scripted("openai-compatible/alpha", {"text": "a"}))
    sent = [r["headers"]["authorization"] for r in await asyncio.to_thread(endpoint.requests)]
    assert sent == ["Bearer sk-first", "Bearer sk-second", "Bearer sk-second"]
    assert "sk-" not in (tmp_path / "config" / "providers.json").read_text()
    assert await again.disconnect("openai-compatible") is True
    assert await again.disconnect("openai-compatible") is False
    assert await again.describe("openai-compatible/alpha") is None
    await again.aclose()


async def test_connect_says_what_is_missing(tmp_path: Path) -> None:
    models = make(tmp_path)
    for provider, fields in (("openai", {}), ("openai-compatible", {"api_key": "k"}), ("mine", {"base_url": "host"})):
        with pytest.raises(ValueError, match=r"api-key-file|base_url|address"):
            await models.connect(provider, dict(fields))
    assert not (tmp_path / "config").exists()
    await models.aclose()


@pytest.mark.parametrize(
    ("options", "window"),
    [
        (("--window", "9000"), 9000),
        (("--window", "0", "--props", "4096"), 4096),
        (("--window", "0", "--ollama"), 6144),
        (("--window", "0"), 16_384),
    ],
)
async def test_a_local_server_is_asked_how_much_it_reads(tmp_path: Path, options: tuple[str, ...], window: int) -> None:
    with model_endpoint("--models", "alpha", *options) as endpoint:
        models = make(tmp_path, local={"ollama": f"{endpoint.url}/v1"})
        try:
            info = await models.describe("ollama/alpha")
            assert info is not None
            assert (info.context_window, info.source) == (window, "found")
        finally:
            await models.aclose()


async def test_a_server_of_the_persons_own_is_asked_before_its_first_step(tmp_path: Path) -> None:
    with model_endpoint("--models", "alpha", "--window", "0", "--props", "2048") as endpoint:
        paths = Paths(tmp_path / "config", tmp_path / "state", tmp_path / "work", tmp_path)
        settings = {"mine": {"base_url": f"{endpoint.url}/v1"}, "gone": {"base_url": "http://127.0.0.1:9/v1"}}
        models = Models(paths, SystemClock(), settings, {}, local_servers={})
        try:
            found = await models.describe("mine/alpha"), await models.describe("gone/x")
            assert [info.context_window for info in found if info] == [2048, 128_000]
        finally:
            await models.aclose()


async def test_a_refused_request_teaches_how_much_a_model_reads(tmp_path: Path, endpoint: EndpointProcess) -> None:
    models = make(tmp_path, environment={"OPENAI_BASE_URL": f"{endpoint.url}/v1"})
    too_long = {"status": 400, "type": "invalid_request_error", "code": "context_length_exceeded"}
    words = {"message": "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens."}
    try:
        await failure(models, scripted("openai/alpha", {"fault": too_long | words}))
        taught, other = await models.describe("openai/alpha"), await models.describe("openai/beta")
        assert [info.context_window for info in (taught, other) if info] == [4096, 200_000]
        shown = {info.handle: info.context_window for info in await models.list_models()}
        assert shown["openai/alpha"] == 4096
        await models.connect("openai", {"base_url": f"{endpoint.url}/v1", "api_key": "sk-x"})
        forgotten = await models.describe("openai/alpha")
        assert forgotten is not None
        assert forgotten.context_window == 200_000
    finally:
        await models.aclose()
