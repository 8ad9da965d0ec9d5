"""Pages are read as a person sees them: nothing that is hidden, and what fields and pictures say."""

from __future__ import annotations

import time

import pytest

from tests.common.library.readers.test_golden import read


@pytest.mark.parametrize(
    ("page", "text"),
    [
        ("<p hidden>no</p><p>yes</p>", "yes"),
        ("<p hidden='until-found'>yes</p>", "yes"),
        ("<p style='color:red; DISPLAY : none'>no</p><p>yes</p>", "yes"),
        ("<p style='visibility:hidden'>no</p><p>yes</p>", "yes"),
        ("<div style='font-size:0px;max-height:0'>no</div><p style='font-size:0.9em'>yes</p>", "yes"),
        ("<style>.a{display:none}</style><p class='a'>no</p><p class='ab'>yes</p>", "yes"),
        ("<style>#x .a, .b{color:red;visibility:hidden}</style><div id=x><p class=a>no</p></div><p>yes</p>", "yes"),
        ("<style>.a{display:none} .a.open{display:block}</style><p class='a open'>yes</p>", "yes"),
        ("<style>@media print{.a{display:none}}</style><p class=a>yes</p>", "yes"),
        ("<style>@media screen{.a{display:none}}</style><p class=a>no</p><p>yes</p>", "yes"),
        ("<style>.a:hover{display:none}</style><p class=a>yes</p>", "yes"),
        ("<style>/* .a{display:none} */ .b{</style><p class=a>yes</p>", "yes"),
        ("<style>.a[x={display:none}</style><p class=a>yes</p>", "yes"),
        ("<body style='display:none'><p>all of it is shown by a program</p></body>", "all of it is shown by a program"),
        ("<dialog>no</dialog><dialog open>yes</dialog>", "yes"),
        ("<div popover>no</div><p>yes</p>", "yes"),
        ("<p>Name <input value='Odile'>, <input type=password value=no></p>", "Name Odile,"),
        ("<p>Size <select><option>small<option selected>large</select></p>", "Size\n\nlarge"),
        ("<p>Rated <img alt='4 of 5' src=s.png>!</p>", "Rated 4 of 5!"),
        ("<p><img alt='s.png' src='a/s.png'>yes</p>", "yes"),
        ("<p><svg><title>Chart</title><text>41 kg</text></svg></p>", "Chart 41 kg"),
        ("<iframe srcdoc='<p>yes</p>'></iframe>", "yes"),
    ],
)
def test_what_a_person_sees(page: str, text: str) -> None:
    assert read(".html", page.encode()).sections[0].text == text


def test_frames_and_recordings_are_named() -> None:
    found = read(".html", b"<iframe src=x></iframe><video></video><audio></audio><p>yes</p>")
    assert found.remarks == ("1 embedded page is not read", "2 recordings are not read")


def test_many_rules_about_many_elements() -> None:
    rules = "".join(f".r{number} .x {{display:none}} .r{number} {{display:block}}" for number in range(3000))
    elements = "".join(f"<p class='r{number} y'>words</p>" for number in range(3000))
    began = time.process_time()
    found = read(".html", f"<style>{rules}</style>{elements}<p class=x>seen</p>".encode())
    assert time.process_time() - began < 30
    assert found.sections[0].text.endswith("seen")
