"""What was measured: samples by figure, kept apart by round, so that one odd round cannot hide in an average."""

import statistics
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Summary:
    """Median, smallest and largest of the round medians; how many single samples are behind them."""

    median: float
    smallest: float
    largest: float
    count: int


@dataclass(slots=True)
class Samples:
    """All that one program showed. `trouble` lists what went wrong, `notes` what a reader may want beside the times."""

    rounds: list[dict[str, list[float]]] = field(default_factory=list)
    trouble: list[str] = field(default_factory=list)
    notes: dict[str, str] = field(default_factory=dict)

    def next_round(self) -> None:
        self.rounds.append({})

    def add(self, key: str, *values: float) -> None:
        self.rounds[-1].setdefault(key, []).extend(values)

    def summary(self, key: str) -> Summary | None:
        """None where no round has a sample."""
        measured = [samples[key] for samples in self.rounds if samples.get(key)]
        if not measured:
            return None
        medians = [statistics.median(samples) for samples in measured]
        return Summary(statistics.median(medians), min(medians), max(medians), sum(map(len, measured)))
