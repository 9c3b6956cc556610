"""Counts comparisons per kind, keeps the largest deviation, remembers the failures."""

from dataclasses import dataclass, field

import numpy as np


@dataclass
class Kind:
    """One kind of check: how many comparisons, the largest deviation and where it was."""

    unit: str
    limit: float
    count: int = 0
    worst: float = 0.0
    where: str = ""


@dataclass
class Tally:
    """All kinds of one run, in the order they were declared."""

    kinds: dict = field(default_factory=dict)
    failures: list = field(default_factory=list)

    def declare(self, kind, unit, limit):
        """A kind must be declared before it is used, so that one never run still shows up as 0."""
        self.kinds[kind] = Kind(unit, limit)

    def fail(self, sentence):
        """A failure that is no number."""
        self.failures.append(sentence)

    def compare(self, kind, where, deviation, count=1):
        """Counts `count` comparisons whose largest deviation is given; NaN fails."""
        entry = self.kinds[kind]
        entry.count += count
        if not deviation <= entry.worst:
            entry.worst, entry.where = deviation, where
        if not deviation <= entry.limit:
            self.fail(f"{kind}: {where}: {deviation:.3g} {entry.unit}, limit {entry.limit:g}")

    def bits(self, kind, where, got, want):
        """Equal bits, element by element; NaN equals NaN."""
        if got.shape != want.shape:
            self.fail(f"{kind}: {where}: shape {got.shape}, expected {want.shape}")
            return
        got, want = (np.ascontiguousarray(v, np.float32) for v in (got, want))
        both_nan = np.isnan(got) & np.isnan(want)
        differs = (got.view(np.uint32) != want.view(np.uint32)) & ~both_nan
        if differs.any():
            at = int(np.flatnonzero(differs)[0])
            where = f"{where}[{at}] is {got.flat[at]!r}, expected {want.flat[at]!r}"
        self.compare(kind, where, int(differs.sum()), got.size)

    def require(self, kind, expected):
        """Fewer comparisons than there should be is a failure, and so is none."""
        if self.kinds[kind].count < max(1, expected):
            self.fail(f"{kind}: {self.kinds[kind].count} comparisons, expected {max(1, expected)}")

    def print(self):
        """One line per kind, then the first failures."""
        for name, kind in self.kinds.items():
            tail = f" at {kind.where}" if kind.worst else ""
            print(f"{name:<16} {kind.count:>9} compared, largest {kind.worst:.3g} {kind.unit}"
                  f" (limit {kind.limit:g}){tail}")
        for sentence in self.failures[:10]:
            print(f"FAILED {sentence}")
        if len(self.failures) > 10:
            print(f"FAILED and {len(self.failures) - 10} more")
