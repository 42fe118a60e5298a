"""What people see: tables of text and HTML, with data that looks like markup."""

import html.parser

import horton_join
import pyarrow as pa


class Cells(html.parser.HTMLParser):
    """Collects tags, and the texts of cells."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.cells: list[str] = []

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        if tag in ("td", "th"):
            self.cells.append("")

    def handle_data(self, data):
        if self.cells:
            self.cells[-1] += data


NASTY = "<script>alert('x')</script> & \"quoted\""


def frame(rows: int = 2):
    session = horton_join.SessionContext()
    session.register_arrow(
        "t", pa.table({"<b>name</b>": [NASTY, *[None] * (rows - 1)], "n": range(rows)})
    )
    return session.sql("SELECT * FROM t")


def test_html_escapes_names_and_values():
    shown = frame()._repr_html_()
    page = Cells()
    page.feed(shown)
    assert page.tags == {"table", "thead", "tbody", "tr", "th", "td", "p"}
    assert [cell.strip() for cell in page.cells[:5]] == ["<b>name</b>", "n", NASTY, "0", "NULL"]
    assert "2 rows" in shown


def test_html_is_short():
    shown = frame(50)._repr_html_()
    assert shown.count("<tr>") == 21 and "the first 20 rows" in shown
    session = horton_join.SessionContext()
    long = session.sql("SELECT repeat('ä', 100000) AS s")._repr_html_()
    assert len(long) < 1000 and "…" in long


def test_show_prints_where_python_prints(capsys):
    frame(5).show(2)
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == 6 and "alert" in printed[3]


def test_repr_runs_nothing():
    session = horton_join.SessionContext()
    endless = session.sql(
        "SELECT a.value AS v FROM range(1000000000) a CROSS JOIN range(1000000000) b"
    )
    assert repr(endless) == "DataFrame(v: Int64)"
    assert repr(endless.schema) == "Schema(v: Int64)" and len(endless.schema) == 1
