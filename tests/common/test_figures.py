"""The style of pictures: lines that are told apart, and keys that hide no data."""

from __future__ import annotations

from pathlib import Path

import pytest
from matplotlib.colors import to_rgb

from common.figures import BLUE, COLORS, GREEN, MOST_LINES, ORANGE, PURPLE, SKY, VERMILLION, line_style, picture

# Okabe and Ito, "Color Universal Design" (2008): red, green and blue of 255.
PUBLISHED = {
    BLUE: (0, 114, 178),
    VERMILLION: (213, 94, 0),
    GREEN: (0, 158, 115),
    PURPLE: (204, 121, 167),
    ORANGE: (230, 159, 0),
    SKY: (86, 180, 233),
}


def test_the_colours_are_okabe_and_itos() -> None:
    assert set(COLORS) == set(PUBLISHED)
    for color, parts in PUBLISHED.items():
        assert tuple(round(255 * part) for part in to_rgb(color)) == parts


def test_lines_differ_by_colour_by_marker_and_by_dash() -> None:
    styles = [line_style(number) for number in range(MOST_LINES)]
    for option in ("color", "marker", "linestyle"):
        assert len({style[option] for style in styles}) == MOST_LINES
    with pytest.raises(ValueError, match="another panel"):
        line_style(MOST_LINES)


@pytest.mark.parametrize("labels", [("same", "same"), ("upper", "lower")], ids=["one key", "a key for each row"])
def test_keys_lie_outside_of_the_axes(tmp_path: Path, labels: tuple[str, str]) -> None:
    path = tmp_path / "picture"
    with picture(path, rows=2, title="two panels") as axes:
        for axis, label in zip(axes, labels, strict=True):
            axis.plot([0, 1], [0, 1], label=label, **line_style(0))
    assert path.read_bytes().startswith(b"\x89PNG")
    figure = axes[0].get_figure()
    assert figure is not None
    keys = [*figure.legends, *(key for axis in axes if (key := axis.get_legend()) is not None)]
    assert len(keys) == len(set(labels))
    assert not any(key.get_window_extent().overlaps(axis.get_window_extent()) for key in keys for axis in axes), (
        "a key hides data"
    )
