"""Runs the table of conformance to RFC 9113 and RFC 7541 of tests/serving/http2."""

from loadtest.figures import Figures


def measure_conformance(figures: Figures) -> None:
    from tests.serving.http2.conformance_rows import FRAMES, STATES
    from tests.serving.http2.field_rows import FIELDS
    from tests.serving.http2.hpack_rows import HPACK, IGNORED
    from tests.support.http2_judges import OwnJudge
    from tests.support.http2_rows import OPENING

    rows = [*FRAMES, *STATES, *FIELDS, *HPACK, *IGNORED]
    wrong = []
    for row in rows:
        judge = OwnJudge()
        judge.feed(OPENING + row.before)
        refused = judge.feed(row.wire).refused
        if refused != row.refused:
            wrong.append(f"{row}: {refused}")
    for each in wrong:
        figures.console.print(f"  ended otherwise: {each}", highlight=False)
    figures.add("rows of the conformance table", len(rows), ">= 140")
    figures.add("conformance rows with another result", len(wrong), "== 0")
