"""Write the table of prices that the daemon reads, from the one that the locked litellm brings.

Importing litellm takes seconds and 190 MB, and its own table is 3.5 MB of JSON; the daemon needs five figures a model.
Run it after the lock file moved litellm; a test compares the two.

    python scripts/extract_prices.py            writes the table
    python scripts/extract_prices.py --check    says whether the table is up to date
"""

import json
import sys
from collections.abc import Iterator
from decimal import Decimal
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

TABLE = Path(__file__).resolve().parent.parent / "daemon/lodger_daemon/spend/prices.tsv"
SOURCE = "litellm/model_prices_and_context_window_backup.json"
MODES = frozenset({"chat", "responses", "completion"})
PROVIDERS = {
    "bedrock_converse": "bedrock",
    "vertex_ai-language-models": "vertex_ai",
    "vertex_ai-anthropic_models": "vertex_ai",
    "vertex_ai-mistral_models": "vertex_ai",
    "vertex_ai-llama_models": "vertex_ai",
    "vertex_ai-deepseek_models": "vertex_ai",
    "vertex_ai-qwen_models": "vertex_ai",
    "vertex_ai-openai_models": "vertex_ai",
    "together_ai": "together",
    "fireworks_ai": "fireworks",
    "cohere_chat": "cohere",
    "text-completion-openai": "openai",
}
"""Their names for providers to ours."""
KINDS = (
    "input_cost_per_token",
    "output_cost_per_token",
    "cache_read_input_token_cost",
    "cache_creation_input_token_cost",
    "output_cost_per_reasoning_token",
)
HEADER = (
    "# handle, then picodollars a token: input, output, cache read, cache write, reasoning; "
    "above:tokens:… for a longer input\n"
)


def main() -> int:
    table = extracted()
    if "--check" in sys.argv[1:]:
        is_current = TABLE.exists() and TABLE.read_text() == table
        print("prices: up to date" if is_current else "prices: stale; run python scripts/extract_prices.py")
        return 0 if is_current else 1
    TABLE.write_text(table)
    print(f"{TABLE}: {table.count(chr(10)) - 1} models")
    return 0


def extracted() -> str:
    """The table's text."""
    source = Path(str(distribution("litellm").locate_file(SOURCE)))
    models: dict[str, Any] = json.loads(source.read_text())
    rows: dict[str, tuple[str, ...]] = {}
    for name, facts in models.items():
        if facts.get("mode") not in MODES:
            continue
        priced = tuple(prices(facts))
        if not priced:
            continue
        handle = handle_of(name, str(facts.get("litellm_provider")))
        # One model under two names may have two prices: the higher one is the safe one.
        rows[handle] = max(rows.get(handle, ()), priced, key=_first_price)
    return HEADER + "".join(f"{handle}\t{chr(9).join(rows[handle])}\n" for handle in sorted(rows))


def handle_of(name: str, provider: str) -> str:
    ours = PROVIDERS.get(provider, provider)
    first, _, rest = name.partition("/")
    return f"{ours}/{rest if rest and first in (provider, ours) else name}"


def prices(facts: dict[str, Any]) -> Iterator[str]:
    """The columns of one model; none when its price is not given, or given as nothing at all.

    A price of zero there stands for a subscription or for "not known" as often as for "free".
    """
    tiers = [tier for tier in facts.get("tiered_pricing") or () if "range" in tier and KINDS[0] in tier]
    base = facts if KINDS[0] in facts else (tiers[0] if tiers else {})
    if not (base.get(KINDS[0]) and base.get(KINDS[1]) is not None):
        return
    yield from columns([base.get(kind) for kind in KINDS])
    for start_tokens, figures in sorted(higher_tiers(facts, tiers)):
        yield f"above:{start_tokens}:" + ":".join(columns(list(figures)))


def higher_tiers(facts: dict[str, Any], tiers: list[dict[str, Any]]) -> Iterator[tuple[int, tuple[Any, ...]]]:
    for tier in tiers[1:]:
        yield int(tier["range"][0]), tuple(tier.get(kind) for kind in KINDS)
    for key in facts:
        start, above, rest = key.partition("_above_")
        thousands, unit, none = rest.partition("k_tokens")
        if start == KINDS[0] and above and thousands.isdigit() and unit and not none:
            yield int(thousands) * 1000, tuple(facts.get(f"{kind}_above_{rest}", facts.get(kind)) for kind in KINDS)


def columns(figures: list[Any]) -> list[str]:
    return [
        "-" if figure is None else str(int((Decimal(str(figure)) * 10**12).to_integral_value())) for figure in figures
    ]


def _first_price(columns: tuple[str, ...]) -> int:
    return int(columns[0]) if columns else -1


if __name__ == "__main__":
    sys.exit(main())
