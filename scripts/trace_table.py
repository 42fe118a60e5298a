#!/usr/bin/env python3
"""A table of where the time of traced queries goes, from a file that --trace wrote.

    sql_bench --preset wide --cases 1Mx10M --repeat 1 --trace trace.json
    scripts/trace_table.py trace.json

For the last run of each query it prints the wall time, the time of host threads, that of the
device's lanes, and the largest parts of the host's, all in milliseconds. The time of a span is its
own, without that of spans inside it.
"""

import collections
import json
import sys

# The devices' process in the file (trace/src/file.rs).
DEVICES = 2
SHOWN = 9


def runs(events):
    """The last run of each query: its title, begin and end in microseconds."""
    begun, last = {}, {}
    for event in events:
        if event.get("cat") != "queries":
            continue
        key = (event["name"], event.get("id"))
        if event["ph"] == "b":
            begun[key] = event["ts"]
        elif key in begun:
            last[event["name"]] = (begun.pop(key), event["ts"])
    return last


def own_times(slices):
    """Sums of the own time of each name, of slices of one thread that are nested."""
    sums, open_ones = collections.Counter(), []
    for begin, end, name in sorted(slices, key=lambda s: (s[0], -s[1])):
        while open_ones and open_ones[-1][0] <= begin:
            open_ones.pop()
        if open_ones:
            sums[open_ones[-1][1]] -= end - begin
        sums[name] += end - begin
        open_ones.append((end, name))
    return sums


def main(path):
    with open(path, encoding="utf-8") as file:
        events = json.load(file)
    slices = [e for e in events if e["ph"] == "X"]
    for title, (begin, end) in runs(events).items():
        threads, lanes = collections.defaultdict(list), collections.Counter()
        for e in slices:
            first, last = e["ts"], e["ts"] + e["dur"]
            if last <= begin or first >= end:
                continue
            if e["pid"] == DEVICES:
                lanes[e["cat"]] += e["dur"] / 1000
            else:
                threads[e["tid"]].append((first, last, e["name"]))
        host = collections.Counter()
        for thread in threads.values():
            for name, time in own_times(thread).items():
                host[name] += time / 1000
        # Time in which a job thread waits for the device is not work.
        host.pop("job", None)
        print(title)
        print(f"  wall {(end - begin) / 1000:.1f}  host {sum(host.values()):.1f}  device "
              + "  ".join(f"{lane} {time:.1f}" for lane, time in sorted(lanes.items())))
        parts = [f"{name} {time:.1f}" for name, time in host.most_common(SHOWN)]
        print("    " + ", ".join(parts))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
