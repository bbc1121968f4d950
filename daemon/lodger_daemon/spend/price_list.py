"""Where prices come from: the person's settings, what runs here, the program's table, the provider's list."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from lodger_daemon.models.core.billing import Billing
from lodger_daemon.models.core.providers import LITELLM_PREFIX
from lodger_daemon.spend.core.prices import FREE, Price, price_from_rates, price_from_row

TABLE: Final = Path(__file__).parent / "prices.tsv"


class PriceList:
    """Remembers each model it was asked for; the table stays on disk.

    Args:
        own: the person's prices, by handle; they win.
        billing: by whose price list a handle is paid; None for a handle that no provider serves.
        listed_rates: what the provider's own list says, as in `ListedModel`.
    """

    def __init__(
        self,
        own: Mapping[str, Price],
        billing: Callable[[str], Billing | None],
        listed_rates: Callable[[str], tuple[int | None, ...]] = lambda _: (),
        table: Path = TABLE,
    ) -> None:
        self._own = own
        self._billing = billing
        self._listed_rates = listed_rates
        self._table = table
        self._rows: dict[str, Price | None] = {}

    def of(self, handle: str) -> Price | None:
        """None = not known. Reads the table, some 200 KB, the first time a model is asked for."""
        if (own := self._own.get(handle)) is not None:
            return own
        match self._billing(handle):
            case Billing.OWN_MACHINE:
                return FREE
            case Billing.PUBLIC:
                known = self._from_table(handle.removeprefix(LITELLM_PREFIX))
                return known or price_from_rates(self._listed_rates(handle))
            case Billing.ELSEWHERE:
                return price_from_rates(self._listed_rates(handle))
            case None:
                return None

    def _from_table(self, handle: str) -> Price | None:
        if handle not in self._rows:
            self._rows[handle] = self._look_up(handle)
        return self._rows[handle]

    def _look_up(self, handle: str) -> Price | None:
        try:
            with self._table.open() as rows:
                found = next((row for row in rows if row.startswith(f"{handle}\t")), None)
        except (OSError, ValueError):
            return None
        return price_from_row(found.rstrip("\n").partition("\t")[2]) if found else None
