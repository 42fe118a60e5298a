"""Tests of the comparison: `python3 -B scripts/compare/tests.py`.

    two fakes that print what horton-sql prints, one of them slow, wrong or broken
           └▶ make compare's whole program ─▶ exit status, report.md

Without a regression that is known to be there, a comparison that sees none would pass for ever.
"""

import itertools
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

from turns import AGAIN, BASE, HEAD, Ran, digest
from verdict import Verdict, chance

PROGRAM = pathlib.Path(__file__).parent
# The shell prints the rows of each file, and those of the mark. So does this.
FAKE = """\
#!/bin/sh
[ "$1" != --version ] || exec echo horton-sql fake
while [ $# -gt 0 ]; do
    case $1 in
    */mark) printf 'end_of_query\\n1\\n' ;;
    */create.sql) ;;
    *.sql) {query} ;;
    esac
    shift
done
"""
ROWS = "printf 'a,b\\n1,0.30000000000000004\\n2,5\\n'"
SAME = "printf 'a,b\\n2,5\\n1,0.3\\n'"


class Fakes(unittest.TestCase):
    """Two queries, and programs that answer them."""

    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.scratch = pathlib.Path(scratch.name)
        (self.scratch / "queries").mkdir()
        for name in ("q1", "q2"):
            (self.scratch / "queries" / f"{name}.sql").write_text("SELECT 1;\n")
        (self.scratch / "create.sql").write_text("")

    def fake(self, name, query):
        file = self.scratch / name
        file.write_text(FAKE.replace("{query}", query))
        file.chmod(0o755)
        return str(file)


class Programs(Fakes):
    """The whole program over two fakes."""

    def compare(self, base, head, repeat):
        """Returns the exit status, what was printed, and the report."""
        out = self.scratch / "out"
        done = subprocess.run(
            [sys.executable, "-B", str(PROGRAM), "--base-bin", self.fake("base", base),
             "--head-bin", self.fake("head", head), "--queries", str(self.scratch / "queries"),
             "--create", str(self.scratch / "create.sql"), "--out", str(out),
             "--repeat", str(repeat)],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        report = out / "report.md"
        return done.returncode, done.stdout, report.read_text() if report.exists() else ""

    def test_equal_programs_pass(self):
        # One round can find nothing slow, however busy the machine is.
        status, printed, report = self.compare(ROWS, SAME, 1)
        self.assertEqual(status, 0, printed)
        self.assertIn("too few rounds", printed)
        self.assertIn("| q2 |", report)

    def test_a_slow_program_fails(self):
        status, printed, report = self.compare(ROWS, f"sleep 0.2; {ROWS}", 4)
        self.assertEqual(status, 1, printed)
        self.assertIn("**FAILED**: the sum is", report)
        self.assertIn("**FAILED**: slower queries, the worst first: q", report)
        self.assertEqual(report.count("| slower |"), 2)

    def test_a_fast_program_passes(self):
        status, printed, _ = self.compare(f"sleep 0.05; {ROWS}", ROWS, 4)
        self.assertEqual(status, 0, printed)

    def test_a_run_that_warms_up_does_not_count(self):
        slow_at_first = f'[ "$last" = "$1" ] || sleep 0.5; last=$1; {ROWS}'
        status, printed, report = self.compare(ROWS, slow_at_first, 1)
        self.assertEqual(status, 0, printed)
        self.assertLess(float(re.search(r"\| q1 \| [^|]+ \| ([^|]+) \|", report)[1]), 500)

    def test_other_rows_fail(self):
        status, printed, _ = self.compare(ROWS, "printf 'a,b\\n2,5\\n1,0.4\\n'", 1)
        self.assertEqual(status, 1, printed)
        self.assertIn("rows differ in q1, q2", printed)

    def test_rows_that_vary_by_themselves_are_not_compared(self):
        status, printed, _ = self.compare("echo a; echo $$", "echo a; echo $$", 2)
        self.assertEqual(status, 0, printed)
        self.assertIn("vary: q1, q2", printed)

    def test_a_program_that_fails_is_named(self):
        status, printed, report = self.compare(ROWS, "echo no room >&2; exit 3", 1)
        self.assertEqual((status, report), (2, ""))
        self.assertIn("head ended with 3: no room", printed)

    def test_a_program_that_stops_early_is_named(self):
        status, printed, _ = self.compare(ROWS, "exit 0", 1)
        self.assertEqual(status, 2)
        self.assertIn("head answered 1 statements", printed)

    def test_what_is_missing_is_named(self):
        for words in ([], ["--base-bin", "/nonexistent"], ["--base", "x", "--queries", "y"]):
            done = subprocess.run([sys.executable, "-B", str(PROGRAM)] + words,
                                  stderr=subprocess.PIPE, text=True)
            self.assertEqual(done.returncode, 2, words)
            self.assertNotIn("Traceback", done.stderr)


# In the place of a build: the program is a file of the commit.
CARGO = """\
#!/bin/sh
mkdir -p "$CARGO_TARGET_DIR/release" && cp program "$CARGO_TARGET_DIR/release/horton-sql"
"""


class Commits(Fakes):
    """Commits of a repository, and a cargo that only copies."""

    def setUp(self):
        super().setUp()
        self.tools = self.scratch / "tools"
        self.tools.mkdir()
        (self.tools / "cargo").write_text(CARGO)
        (self.tools / "cargo").chmod(0o755)
        self.git("init", "--quiet")
        for name, query in (("good", ROWS), ("wrong", "echo a")):
            self.fake("program", query)
            self.git("add", "program")
            self.git("-c", "user.name=a", "-c", "user.email=b", "commit", "--quiet", "-m", name)
            self.git("tag", name)

    def git(self, *words):
        subprocess.run(["git", *words], cwd=self.scratch, check=True)

    def status(self, base, head):
        """Returns the exit status, and what was printed."""
        path = f"{self.tools}:{os.environ['PATH']}"
        done = subprocess.run(
            [sys.executable, "-B", str(PROGRAM), "--base", base, "--head", head, "--queries",
             "queries", "--create", "create.sql", "--out", "target/compare", "--repeat", "1"],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=self.scratch,
            env={**os.environ, "PATH": path})
        return done.returncode, done.stdout

    def test_trees_are_those_of_the_commits_in_every_call(self):
        self.assertEqual(self.status("good", "good")[0], 0)
        status, printed = self.status("good", "HEAD")
        self.assertEqual(status, 1, printed)
        self.assertIn("rows differ in q1, q2", printed)
        report = (self.scratch / "target/compare/report.md").read_text()
        self.assertRegex(report, r"\| base \| [0-9a-f]{7,} good \|")
        self.assertRegex(report, r"\| head \| [0-9a-f]{7,} wrong \|")
        # What was removed by hand is made again.
        shutil.rmtree(self.scratch / "target/compare/base/tree")
        self.assertEqual(self.status("wrong", "wrong")[0], 0)

    def test_a_commit_that_is_not_there_is_named(self):
        status, printed = self.status("nothing", "HEAD")
        self.assertEqual(status, 2, printed)
        self.assertIn("git knows no commit 'nothing'", printed)


def verdict(base, again, head):
    """The verdict on queries with these runs each, by name."""
    ran = {}
    for name in base:
        ran[name] = Ran()
        ran[name].times.update({BASE: base[name], AGAIN: again[name], HEAD: head[name]})
    return Verdict("suite", ran)


class Verdicts(unittest.TestCase):
    """What is slower, by times that are known."""

    def test_chance_counts_orders(self):
        orders = list(itertools.permutations([1, 2, 3, 4, 5]))
        for head, base in (([5, 4], [1, 2, 3]), ([5, 2], [1, 3, 4]), ([1, 2], [3, 4, 5])):
            def pairs(head, base):
                return sum(h > b for h in head for b in base)

            at_least = [order for order in orders
                        if pairs(order[:2], order[2:]) >= pairs(head, base)]
            self.assertAlmostEqual(chance(head, base), len(at_least) / len(orders))
        self.assertAlmostEqual(chance([11] * 5, [10] * 10), 1 / 3003)

    def one(self, base, again, head):
        found = verdict({"q": base}, {"q": again}, {"q": head})
        return found.is_slower, found.slower == ["q"]

    def test_four_per_cent_beyond_noise_are_slower(self):
        base, again = [1000, 1001, 1002, 1003, 1004], [1000, 1005, 1001, 1002, 1003]
        self.assertEqual(self.one(base, again, [1040] * 5), (True, True))
        self.assertEqual(self.one(base, again, [1025] * 5), (False, False))

    def test_noise_is_not_slower(self):
        base, again = [1000, 1100, 1002, 1090, 1004], [1080, 1005, 1095, 1002, 1070]
        head = [1060, 1040, 1085, 1099, 1075]
        self.assertGreater(verdict({"q": base}, {"q": again}, {"q": head}).total.ratio, 1.03)
        self.assertEqual(self.one(base, again, head), (False, False))

    def test_a_single_slow_run_of_base_hides_nothing_of_a_sum(self):
        base, again = [1000, 1001, 1002, 1003, 1400], [1000, 1005, 1001, 1002, 1003]
        self.assertEqual(self.one(base, again, [1100] * 5), (True, True))

    def test_a_query_below_the_step_of_a_clock_does_not_fail(self):
        self.assertEqual(self.one([10] * 5, [10] * 5, [19] * 5), (True, False))
        self.assertFalse(verdict({"q": [10] * 5}, {"q": [10] * 5}, {"q": [19] * 5}).passes())
        self.assertEqual(self.one([10] * 5, [10] * 5, [21] * 5), (True, True))

    def test_of_many_queries_each_must_be_rarer(self):
        names = [f"q{number:02}" for number in range(40)]
        quiet = {name: [1000, 1001, 1002, 1003, 1004] for name in names}
        slow = {**quiet, "q07": [1100] * 5}
        found = verdict(quiet, quiet, slow)
        self.assertEqual((found.queries[0].name, found.slower, found.is_slower), ("q07", [], False))
        quiet = {name: times + [1005] for name, times in quiet.items()}
        found = verdict(quiet, quiet, {**quiet, "q07": [1100] * 6})
        self.assertEqual((found.slower, found.is_slower), (["q07"], False))


class Digests(unittest.TestCase):
    """Which rows are the same."""

    def test_order_and_last_digits_do_not_count(self):
        rows = [b"a,b\n", b"x,0.30000000000000004\n", b"y,5\n"]
        self.assertEqual(digest(rows), digest([rows[0], rows[2], b"x,0.3\n"]))
        self.assertNotEqual(digest(rows), digest(rows[:2]))
        self.assertNotEqual(digest(rows), digest([rows[0], rows[1], b"y,6\n"]))
        self.assertNotEqual(digest(rows), digest([rows[0], b"x,0.3000001\n", rows[2]]))


if __name__ == "__main__":
    unittest.main()
