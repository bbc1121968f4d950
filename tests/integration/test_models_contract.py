"""One contract for every way to a model: three kinds of servers, through the lean adapters and through litellm.

Servers and workers are processes of their own, and everything between them is HTTP. Importing litellm takes seconds,
so one set of workers serves the file.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from lodger_daemon.models.gateway import Models
from lodger_daemon.paths import Paths
from lodger_daemon.system_clock import SystemClock
from support.endpoint_process import EndpointProcess, model_endpoint
from support.model_contract import ModelContract

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture(scope="module")
def plain_endpoint() -> Iterator[EndpointProcess]:
    with model_endpoint() as running:
        yield running


@pytest.fixture(scope="module")
def ollama_endpoint() -> Iterator[EndpointProcess]:
    with model_endpoint("--ollama") as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def models(
    plain_endpoint: EndpointProcess, ollama_endpoint: EndpointProcess, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Models]:
    base = tmp_path_factory.mktemp("models")
    paths = Paths(base / "config", base / "state", base / "work", base)
    environment = {
        "OPENAI_BASE_URL": f"{plain_endpoint.url}/v1",
        "OPENAI_API_KEY": "sk-x",
        "ANTHROPIC_BASE_URL": plain_endpoint.url,
        "ANTHROPIC_API_KEY": "sk-x",
    }
    settings = {"ollama": {"base_url": f"{ollama_endpoint.url}/v1"}}
    gateway = Models(paths, SystemClock(), settings, environment, local_servers={})
    await gateway.start()
    yield gateway
    await asyncio.wait_for(gateway.aclose(), 10)


class _OverPlain(ModelContract):
    @pytest.fixture
    def endpoint(self, plain_endpoint: EndpointProcess) -> EndpointProcess:
        return plain_endpoint


class _OverOllama(ModelContract):
    cached = 0

    @pytest.fixture
    def endpoint(self, ollama_endpoint: EndpointProcess) -> EndpointProcess:
        return ollama_endpoint


class TestOpenAi(_OverPlain):
    @pytest.fixture
    def handle(self) -> str:
        return "openai/scripted"


class TestAnthropic(_OverPlain):
    @pytest.fixture
    def handle(self) -> str:
        return "anthropic/scripted"


class TestOllama(_OverOllama):
    @pytest.fixture
    def handle(self) -> str:
        return "ollama/scripted"


class TestLitellmToOpenAi(_OverPlain):
    @pytest.fixture
    def handle(self) -> str:
        return "litellm:openai/scripted"


class TestLitellmToAnthropic(_OverPlain):
    @pytest.fixture
    def handle(self) -> str:
        return "litellm:anthropic/scripted"


class TestLitellmToOllama(_OverOllama):
    """Over Ollama's own routes, which have no ids for calls."""

    keeps_ids = False

    @pytest.fixture
    def handle(self) -> str:
        return "litellm:ollama/scripted"
