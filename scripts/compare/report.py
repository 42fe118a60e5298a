"""The report in Markdown: what fails, machine and command, and each suite with the worst first."""

import datetime
import os
import platform
import shlex
import sys

from verdict import ALLOWED, CHANCE, LEAST_MS

METHOD = f"""\
The programs took turns, a process each. `again` is base once more, and what it differs by is noise.
A query runs twice in a process, and the second run counts. Times are medians over rounds, of base
over both of its series; a sum is one of medians. Rows of all runs are compared, in any order.

A sum is slower above {ALLOWED} of base, if equal programs have runs in such an order in one of
{1 / CHANCE:.0f} calls at most (`chance`, the rank test of Mann and Whitney). A query must also take
{LEAST_MS} ms more, and its chance counts as often as queries are compared.
"""


def facts(base, head, asked):
    """What a reader must know to judge a time, and to measure it again."""
    return [
        ("date", datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC")),
        ("base", base.name),
        ("head", head.name),
        ("command", f"`python3 -B {shlex.join(sys.argv)}`"),
        ("joins", f"on {asked.device}" if asked.device else "on the host"),
        ("CPU", of_file("/proc/cpuinfo", "model name") or platform.processor() or "unknown"),
        ("cores", str(os.cpu_count())),
        ("memory", of_file("/proc/meminfo", "MemTotal") or "unknown"),
        ("system", platform.platform()),
        ("load before", f"{os.getloadavg()[0]:.2f}"),
    ]


def of_file(path, name):
    """The value in the first line as `name : value` of a file of the system."""
    try:
        with open(path, encoding="utf-8") as file:
            pairs = (text.partition(":") for text in file)
            return next((value.strip() for key, _, value in pairs if key.strip() == name), None)
    except OSError:
        return None


def findings(verdict):
    """What makes a suite fail, and what could not be seen."""
    if verdict.is_slower:
        yield f"**FAILED**: the sum is {verdict.total.ratio:.3f} of base's"
    if verdict.slower:
        yield f"**FAILED**: slower queries, the worst first: {', '.join(verdict.slower)}"
    if verdict.differing:
        yield f"**FAILED**: rows differ in {', '.join(verdict.differing)}"
    if verdict.varying:
        yield f"rows not compared, as base's own vary: {', '.join(verdict.varying)}"
    if verdict.rarest >= CHANCE:
        yield "too few rounds to find a slower sum: REPEAT must be larger"
    elif verdict.rarest * len(verdict.queries) >= CHANCE:
        yield "too few rounds to find single slower queries: REPEAT must be larger"


def line(verdict):
    """A suite in one line."""
    total, worst = verdict.total, verdict.queries[0]
    parts = [f"{verdict.title}: base {total.base:.0f} ms, head {total.head:.0f} ms",
             f"head / base {total.ratio:.3f}", f"again / base {total.noise:.3f}",
             f"worst {worst.name} {worst.ratio:.3f}"]
    return "; ".join(parts + list(findings(verdict)))


def row(comparison, verdict):
    """A line of the table."""
    cells = [comparison.name, f"{comparison.base:.1f}", f"{comparison.head:.1f}",
             f"{comparison.ratio:.3f}", f"{comparison.noise:.3f}", f"{comparison.chance:.2g}",
             "slower" if comparison.name in verdict.slower else ""]
    return f"| {' | '.join(cells)} |"


def text(of_machine, verdicts):
    """The whole report."""
    lines = ["# Base and head by turns", ""]
    lines += [f"- {line(verdict)}" for verdict in verdicts]
    lines += ["", "| what | value |", "|---|---|"]
    lines += [f"| {name} | {value} |".replace("\n", " ") for name, value in of_machine]
    lines += ["", METHOD]
    for verdict in verdicts:
        lines += [f"## {verdict.title}", "",
                  "| query | base ms | head ms | head / base | again / base | chance | |",
                  "|---|--:|--:|--:|--:|--:|---|", row(verdict.total, verdict)]
        lines += [row(query, verdict) for query in verdict.queries] + [""]
    return "\n".join(lines)
