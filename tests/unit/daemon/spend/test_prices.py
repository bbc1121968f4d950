"""What a step costs: exact sums, cached tokens at their own price, and no price that nobody knows."""

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lodger_daemon.models.contract import Usage
from lodger_daemon.models.core.billing import Billing, billing_of
from lodger_daemon.models.core.frames import ModelsListed, read_report, report_fields
from lodger_daemon.models.core.model_lists import listed_models
from lodger_daemon.models.core.providers import KNOWN, LOCAL_SERVERS, Dialect, Provider
from lodger_daemon.spend.core.prices import FREE, Price, Rates, cost_nano_usd, price_from_row, price_per_million
from lodger_daemon.spend.price_list import PriceList
from lodger_tools.json_value import JsonObject

ROOT = Path(__file__).resolve().parents[4]
SONNET = Price(Rates(3_000_000, 15_000_000, 300_000, 3_750_000))


def public(_: str) -> Billing:
    return Billing.PUBLIC


def test_each_kind_of_token_has_its_own_price() -> None:
    usage = Usage(prompt=1000, completion=10, cached=600, cache_written=100)
    assert cost_nano_usd(SONNET, usage) == 300 * 3000 + 600 * 300 + 100 * 3750 + 10 * 15_000


def test_a_price_the_table_lacks_is_that_of_any_token() -> None:
    price = Price(Rates(2_000_000, 8_000_000))
    assert cost_nano_usd(price, Usage(prompt=10, cached=4, cache_written=3, completion=2, reasoning=1)) == 36_000


def test_a_long_input_costs_what_its_tier_says() -> None:
    price = price_from_row("1000000\t2000000\t-\t-\t-\tabove:200000:3000000:4000000:-:-:-")
    assert price is not None
    assert cost_nano_usd(price, Usage(prompt=200_000)) == 200_000 * 1000
    assert cost_nano_usd(price, Usage(prompt=200_001)) == 200_001 * 3000


def test_reasoning_has_its_own_price_where_the_table_names_one() -> None:
    price = price_from_row("1000\t2000\t-\t-\t9000")
    assert price is not None
    assert cost_nano_usd(price, Usage(completion=5, reasoning=2)) == 3 * 2 + 2 * 9


@given(
    st.builds(
        Usage,
        prompt=st.integers(0, 10**7),
        completion=st.integers(0, 10**6),
        cached=st.integers(0, 10**8),
        cache_written=st.integers(0, 10**8),
        reasoning=st.integers(0, 10**8),
    )
)
def test_no_report_makes_a_step_cheaper_than_all_of_it_cached(usage: Usage) -> None:
    """A provider that reports more cached tokens than there are earns nobody money back."""
    assert cost_nano_usd(SONNET, usage) >= -(-usage.prompt * 300_000 // 1000)


def test_less_than_a_nano_dollar_is_rounded_up() -> None:
    assert cost_nano_usd(Price(Rates(1, 1)), Usage(prompt=1)) == 1


@pytest.mark.parametrize("row", ["", "x\t1\t-\t-\t-", "1", "-\t1\t-\t-\t-", "1\t1\t-\t-\t-\tabove:x:1:1:-:-:-"])
def test_a_row_that_cannot_be_read_is_no_price(row: str) -> None:
    assert price_from_row(row) is None


def test_the_table_is_that_of_the_locked_litellm() -> None:
    checked = subprocess.run(
        [sys.executable, str(ROOT / "scripts/extract_prices.py"), "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.parametrize(
    "handle", ["openai/gpt-5", "anthropic/claude-sonnet-4-5", "deepseek/deepseek-chat", "gemini/gemini-2.5-pro"]
)
def test_common_models_have_a_price(handle: str) -> None:
    price = PriceList({}, public).of(handle)
    assert price is not None
    assert 0 < price.base.prompt <= price.base.completion
    assert price.base.cached is not None
    assert price.base.cached < price.base.prompt
    assert PriceList({}, public).of(f"litellm:{handle}") == price


def test_a_name_that_begins_like_another_is_not_that_other() -> None:
    assert PriceList({}, public).of("openai/gpt") is None
    assert PriceList({}, public).of("openai/gpt-5\t") is None


def test_no_table_is_no_price(tmp_path: Path) -> None:
    assert PriceList({}, public, table=tmp_path / "none").of("openai/gpt-5") is None


def test_the_persons_price_wins_and_may_be_nothing() -> None:
    own = {"openai/gpt-5": price_per_million(0, 0, None, None), "mine/x": price_per_million(0.5, 2, 0.05, None)}
    prices = PriceList(own, public)
    assert prices.of("openai/gpt-5") == FREE
    assert prices.of("mine/x") == Price(Rates(500_000, 2_000_000, 50_000))


def test_a_provider_that_lists_prices_is_believed_where_no_table_knows() -> None:
    def listed(_: str) -> tuple[int | None, ...]:
        return (3_000_000, 15_000_000, 300_000, None)

    price = Price(Rates(3_000_000, 15_000_000, 300_000))
    assert PriceList({}, public, listed).of("openrouter/x/y") == price
    assert PriceList({}, lambda _: Billing.ELSEWHERE, listed).of("mine/x") == price
    assert PriceList({}, public, listed).of("openai/gpt-5") != price
    assert PriceList({}, public, lambda _: ()).of("openrouter/x/y") is None
    assert PriceList({}, lambda _: None, listed).of("mine/x") is None


def test_prices_in_a_list_of_models() -> None:
    def row(name: str, **pricing: object) -> JsonObject:
        return {"id": name, "pricing": pricing}  # type: ignore[dict-item]

    rows = [
        row("a", prompt="0.000003", completion="0.000015", input_cache_read="0.0000003"),
        row("b:free", prompt="0", completion="0"),
        row("c", prompt="0", completion="0"),
        row("auto", prompt="-1", completion="-1"),
        row("d", prompt=3, completion=15),
        row("e", prompt="nan", completion="inf"),
    ]
    listed = listed_models({"data": list(rows)})
    assert [model.rates for model in listed] == [
        (3_000_000, 15_000_000, 300_000, None), (0, 0, None, None), (), (), (), (),
    ]  # fmt: skip
    number, report = read_report(report_fields(7, ModelsListed(listed)))
    assert (number, report) == (7, ModelsListed(listed))


def test_who_sends_the_bill() -> None:
    openai = Provider("openai", KNOWN["openai"].base_url, Dialect.OPENAI)
    gateway = Provider("openai", "https://gateway.example/v1", Dialect.OPENAI)
    ollama = Provider("ollama", LOCAL_SERVERS["ollama"], Dialect.OPENAI, source="found")
    proxy = Provider("mine", "http://127.0.0.1:4000/v1", Dialect.OPENAI)
    assert billing_of(openai, "gpt-5") is Billing.PUBLIC
    assert billing_of(Provider("gemini", "", Dialect.LITELLM), "x") is Billing.PUBLIC
    assert billing_of(gateway, "gpt-5") is Billing.ELSEWHERE
    assert billing_of(ollama, "llama3") is Billing.OWN_MACHINE
    assert billing_of(ollama, "gpt-oss:120b-cloud") is Billing.ELSEWHERE
    assert billing_of(proxy, "gpt-5") is Billing.ELSEWHERE
    unserved = PriceList({}, lambda _: None)
    assert unserved.of("openai/gpt-5") is None
