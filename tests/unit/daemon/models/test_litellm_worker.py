"""The litellm worker owes the same. Importing litellm takes seconds, so one worker serves the whole file."""

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
def endpoint() -> Iterator[EndpointProcess]:
    with model_endpoint() as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def models(endpoint: EndpointProcess, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Models]:
    base = tmp_path_factory.mktemp("litellm")
    paths = Paths(base / "config", base / "state", base / "work", base)
    environment = {
        "OPENAI_BASE_URL": f"{endpoint.url}/v1",
        "OPENAI_API_KEY": "sk-x",
        "ANTHROPIC_BASE_URL": endpoint.url,
        "ANTHROPIC_API_KEY": "sk-x",
    }
    gateway = Models(paths, SystemClock(), {}, environment, local_servers={})
    yield gateway
    await asyncio.wait_for(gateway.aclose(), 10)


class TestLitellmToOpenAi(ModelContract):
    @pytest.fixture
    def handle(self) -> str:
        return "litellm:openai/scripted"


class TestLitellmToAnthropic(ModelContract):
    @pytest.fixture
    def handle(self) -> str:
        return "litellm:anthropic/scripted"
