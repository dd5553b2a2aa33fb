"""Dates in several writings, each column read in one way."""

from __future__ import annotations

import datetime

import numpy as np
import pytest

from vflbench.data.columns import dates


def day(year: int, month: int, number: int, hour: float = 0.0) -> float:
    return (datetime.date(year, month, number) - datetime.date(1970, 1, 1)).days + hour / 24


@pytest.mark.parametrize(
    ("cells", "expected", "writing"),
    [
        (["2020-12-31", "2020-02-29"], [day(2020, 12, 31), day(2020, 2, 29)], "dates"),
        (["2020/12/31 06:00", "2020.2.1"], [day(2020, 12, 31, 6), day(2020, 2, 1)], "dates"),
        (["2020-12-31T23:30:00+01:00", "2020-01-01T00:00:00Z"], [day(2020, 12, 31, 22.5), day(2020, 1, 1)], "dates"),
        (["31/12/2020", "01/02/2020"], [day(2020, 12, 31), day(2020, 2, 1)], "dates, the day first"),
        (["12/31/2020", "01/02/2020"], [day(2020, 12, 31), day(2020, 1, 2)], "dates, the month first"),
        (["12-31-20 1:30 PM", "1-2-20 12:00 am"], [day(2020, 12, 31, 13.5), day(2020, 1, 2)], "dates, the month first"),
        (["31.12.69", "1. 2. 68"], [day(1969, 12, 31), day(2068, 2, 1)], "dates, the day first"),
        (["3 Jan 2020", "Dec 31, 2020"], [day(2020, 1, 3), day(2020, 12, 31)], "dates"),
        (["3. März 2021", "04-MAY-21"], [day(2021, 3, 3), day(2021, 5, 4)], "dates"),
        (["6:00", "18:30:00"], [0.25, 18.5 / 24], "times of day"),
        (["2020-12", "2021-01"], [day(2020, 12, 1), day(2021, 1, 1)], "months"),
        (["2020-12", "2021-01-02"], [day(2020, 12, 1), day(2021, 1, 2)], "dates"),
        (["1 août 2020", "2. Jänner 2021"], [day(2020, 8, 1), day(2021, 1, 2)], "dates"),
        (["3-mayo-20", "4 ene. 2021"], [day(2020, 5, 3), day(2021, 1, 4)], "dates"),
    ],
)  # fmt: skip
def test_writings(cells, expected, writing):
    found = dates.read(np.array([*cells, None], dtype=object))
    assert found is not None and found.writing == writing and not found.ambiguous
    np.testing.assert_allclose(found.days, [*expected, np.nan], atol=1e-9)


def test_day_or_month_first_where_no_cell_tells():
    cells = np.array(["03/04/2020", "05/06/2020"], dtype=object)
    found = dates.read(cells)
    assert found.ambiguous and found.days[0] == day(2020, 4, 3)
    assert (
        dates.read(cells, "month_first").days[0] == day(2020, 3, 4) and not dates.read(cells, "month_first").ambiguous
    )
    dotted = dates.read(np.array(["3.4.2020", "5.6.2020"], dtype=object))
    assert dotted.ambiguous is False and dotted.why == "as dates with points are written so"
    american = dates.read(np.array(["3/4/2020 1:00 PM", "5/6/2020 2:00 AM"], dtype=object))
    assert american.writing == "dates, the month first" and american.ambiguous
    assert dates.read(np.array(["5/5/20", "6/6/20"], dtype=object)).ambiguous is False


@pytest.mark.parametrize(
    "cell",
    [
        "2020-02-30",
        "31/31/2020",
        "25:00",
        "2020-13-01",
        "13:00 PM",
        "1.2.3",
        "120/80",
        "n/a",
        "2020-01-00",
        "3 mayors 2020",
        "3 decline 2020",
    ],
)
def test_what_the_calendar_does_not_have_is_no_date(cell):
    good = ["2020-01-01", "31/12/2020", "2020-03-03"]
    found = dates.read(np.array([*good, cell], dtype=object))
    assert found is not None and np.isnan(found.days).tolist() == [False, False, False, True]


def test_texts_and_whole_numbers():
    assert dates.read(np.array(["a", "2020-01-01", "b"], dtype=object)) is None
    assert dates.read(np.array([None], dtype=object)) is None
    found = dates.of_integers(np.array([20201231, np.nan, 20200229, 20200101]))
    np.testing.assert_array_equal(found, [day(2020, 12, 31), np.nan, day(2020, 2, 29), day(2020, 1, 1)])
    for numbers in ([20201331, 20200101, 20200102], [20201231.5, 20200101, 20200102], [1, 2, 3], [20200101, 20200102]):
        assert dates.of_integers(np.array(numbers, dtype=float)) is None
