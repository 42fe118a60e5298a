"""Whether head is slower than base, by more than noise.

    times of base   ┊  ┊┊ ┊  ┊          ┐ both series of base: ten runs of one program
    times of again    ┊ ┊ ┊┊ ┊          ┘
    times of head          ┊  ┊ ┊ ┊┊    are they above those ten, or among them?

The median of head must be more than 3 % above that of base. And the runs of head must be so far
above those of base that equal programs would have them there in one of a hundred calls at most.
That is the rank test of Mann and Whitney, which asks nothing of how times are distributed. One
second series of base would not say it: it is as often near the first by luck as far from it.

Of many queries one is slow by chance. So each must be as rare as one of a hundred calls by the
number of queries.
"""

import functools
import math
import statistics
from dataclasses import dataclass

from turns import AGAIN, BASE, HEAD

# What the project allows a commit (issue 44).
ALLOWED = 1.03
# Share of calls with equal programs that may fail.
CHANCE = 0.01
# The step of the clock that horton-sql shows. Of a query, a user sees no less.
LEAST_MS = 10


@functools.lru_cache(maxsize=None)
def orders(head, base):
    """Orders of so many runs with 0, 1, 2 … pairs of runs in which head is slower.

    These are the coefficients of a Gaussian binomial: of the product over n = 1 … head of
    (1 - x^(base + n)) / (1 - x^n).
    """
    counts = [1] + [0] * (head * base)
    for n in range(1, head + 1):
        for pairs in range(head * base, base + n - 1, -1):
            counts[pairs] -= counts[pairs - base - n]
        for pairs in range(n, head * base + 1):
            counts[pairs] += counts[pairs - n]
    return counts


def chance(head, base):
    """The probability that equal programs have head at least so far above base."""
    pairs = sum(h > b for h in head for b in base)
    counts = orders(len(head), len(base))
    return sum(counts[pairs:]) / sum(counts)


@dataclass
class Comparison:
    """Times of one query, or of all, in milliseconds."""

    name: str
    base: float
    head: float
    # The second series of base over the first.
    noise: float
    chance: float

    @property
    def ratio(self):
        return self.head / self.base


def of_query(name, times):
    """Compares the runs of a query."""
    both = times[BASE] + times[AGAIN]
    return Comparison(name, statistics.median(both), statistics.median(times[HEAD]),
                      statistics.median(times[AGAIN]) / statistics.median(times[BASE]),
                      chance(times[HEAD], both))


def of_all(queries, ran):
    """Compares the sums of medians; the runs are those of whole rounds."""
    def rounds(side):
        return [sum(times) for times in zip(*(query.times[side] for query in ran.values()))]

    def medians(side):
        return sum(statistics.median(query.times[side]) for query in ran.values())

    return Comparison("all", sum(query.base for query in queries),
                      sum(query.head for query in queries), medians(AGAIN) / medians(BASE),
                      chance(rounds(HEAD), rounds(BASE) + rounds(AGAIN)))


class Verdict:
    """What the runs of a suite say."""

    def __init__(self, title, ran):
        self.title = title
        queries = [of_query(name, query.times) for name, query in ran.items()]
        self.total = of_all(queries, ran)
        # The worst comes first.
        self.queries = sorted(queries, key=lambda query: -query.ratio)
        self.is_slower = self.total.ratio > ALLOWED and self.total.chance < CHANCE
        self.slower = [query.name for query in self.queries if self.is_slow(query)]
        # Base has several right answers where a LIMIT cuts through rows that ORDER BY ties.
        self.varying = [name for name, query in ran.items()
                        if len(query.rows[BASE] | query.rows[AGAIN]) > 1]
        self.differing = [name for name, query in ran.items() if name not in self.varying
                          and query.rows[HEAD] != query.rows[BASE]]
        repeat = len(next(iter(ran.values())).times[HEAD])
        self.rarest = 1 / math.comb(3 * repeat, repeat)

    def is_slow(self, query):
        """Whether one query is slower."""
        return (query.ratio > ALLOWED and query.head - query.base >= LEAST_MS
                and query.chance * len(self.queries) < CHANCE)

    def passes(self):
        return not (self.is_slower or self.slower or self.differing)
