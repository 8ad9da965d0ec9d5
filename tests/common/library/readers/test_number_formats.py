"""Values of cells as a sheet shows them; the right texts are those of Excel."""

from __future__ import annotations

from datetime import date, datetime, time, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.library.readers.number_formats import shown


@pytest.mark.parametrize(
    ("value", "code", "text"),
    [
        (2138, "00000", "02138"),
        (12345678, r"000\-00\-0000", "012-34-5678"),
        (42, '"INV-"0000', "INV-0042"),
        (123456, "0.00E+00", "1.23E+05"),
        (0.00042, "0.00E+00", "4.20E-04"),
        (0.5, "# ?/?", "1/2"),
        (2.25, "# ?/?", "2 1/4"),
        (0.125, "# ?/8", "1/8"),
        (1250.5, r'#,##0.00\ "EUR"', "1,250.50 EUR"),
        (1234567, '0000" "000', "1234 567"),
        (250000, '#,##0,"k"', "250k"),
        (0.075, "0.0%", "7.5%"),
        (7.5, '0.0"%"', "7.5%"),
        (-5, "0;(0)", "(5)"),
        (-5, "0.00", "-5.00"),
        (0, '0;-0;"nil"', "nil"),
        (5, ";;;", ""),
        (1234.5, "[$€-407] #,##0.00", "€ 1,234.50"),
        (-1234.5, r'_-* #,##0.00\ "€"_-;\-* #,##0.00\ "€"_-', "-1,234.50 €"),
        (5551234567, "(###) ###-####", "(555) 123-4567"),
        (2.5, "0.0##", "2.5"),
        (3, "#.##", "3"),
        (1999.995, "0.00", "2000.00"),
        (-0.004, "0.00", "0.00"),
        (15, "[<10]0;[>=10]0.0", "15.0"),
        (1e20, "General", "1e+20"),
        (0.1 + 0.2, "General", "0.3"),
        (float("inf"), "0.0", "inf"),
        ("x", "@", "x"),
        ("x", '0;0;0;"Nr. "@', "Nr. x"),
        (True, "General", "TRUE"),
        (None, "0", ""),
        (datetime(2024, 1, 1), "mmm yyyy", "Jan 2024"),
        (datetime(2000, 1, 2), "dd/mm/yyyy", "2000-01-02"),
        (datetime(2026, 5, 1, 9, 5), "m/d/yy h:mm", "2026-05-01 09:05"),
        (date(2026, 3, 4), "d. mmmm", "4. March"),
        (datetime(2026, 3, 4), "dddd", "Wednesday"),
        (time(8, 30), "h:mm AM/PM", "8:30 AM"),
        (time(0, 5), "h:mm AM/PM", "12:05 AM"),
        (time(18, 5, 7), "hh:mm:ss", "18:05:07"),
        (timedelta(days=1, hours=12), "[h]:mm", "36:00"),
        (timedelta(minutes=7, seconds=3), "[mm]:ss", "07:03"),
        (timedelta(hours=-2), "General", "-2:00:00"),
    ],
)
def test_values(value: object, code: str, text: str) -> None:
    assert shown(value, code) == text


CODES = st.text(alphabet='0#?.,%/Ee+-;[]"\\_*@ymdhsAMP$€ ()<>=1', max_size=12)


@given(
    st.one_of(st.floats(), st.integers(-(10**12), 10**12), st.datetimes(), st.timedeltas(), st.text(max_size=5)), CODES
)
def test_any_format_shows_something(value: object, code: str) -> None:
    """A format that no program writes costs neither the sheet nor its other cells."""
    assert isinstance(shown(value, code), str)


@given(st.integers(0, 10**14))
def test_no_digit_is_lost(number: int) -> None:
    assert shown(number, "#,##0").replace(",", "") == shown(number, "0") == str(number)
    assert shown(number, "000000000000000").lstrip("0") == str(number).lstrip("0")
