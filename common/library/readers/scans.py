"""Words of pictures, such as scanned pages, by character recognition (OCR).

RapidOCR ships its models, so nothing is downloaded. Without it, scans are named and not read.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass, field
from functools import cache
from importlib.util import find_spec
from statistics import median
from typing import TYPE_CHECKING, Any, Final

from common.library.readers.layout import Box, Word
from common.process.machine import cores_each

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from PIL.Image import Image

ENGINE: Final = "rapidocr"
NOT_INSTALLED: Final = "install dragon-runtime[ocr] to read them"
MOST_SCANS: Final = 1000  # of a document
MOST_FAILURES: Final = 3  # scans of a document that can't be read; further ones are not tried
RESOLUTION: Final = 200  # dots per inch
LONGEST_SIDE: Final = 4000  # pixels of a page
MOST_PIXELS: Final = 200_000_000  # of a picture file
_LEAST_SIDE: Final = 32  # pixels; a smaller picture is an icon
_DETECTED_AT: Final = 1280  # pixels of the longest side, for finding lines
_MOST_THREADS: Final = 4
_CERTAIN: Final = 0.5  # least score of a line
_SPARSE: Final = 0.7  # letters per square of a line; fewer are of a script that the models lack
_UPRIGHT: Final = 1.5  # height per width of a line that runs up or down
_JUDGED: Final = 5  # lines whose direction is looked at
_ASKEW: Final = 0.003  # radians
_LETTER: Final = 0.75  # size of letters, as part of a line's height
_RULE: Final = 0.4  # inches of the shortest line of a table
_POINTS: Final = 72  # an inch


@dataclass(frozen=True, slots=True)
class Scanned:
    """A picture's words and lines in points.

    `unclear` counts unreadable lines. `failed` is the reason why nothing was read; empty for success.
    """

    words: tuple[Word, ...] = ()
    rules: tuple[Box, ...] = ()
    unclear: int = 0
    failed: str = ""


class Later(Exception):
    """Raised at the first unknown scan: the document is read after those without scans."""


@dataclass(slots=True)
class Course:
    """The course of one document's reading.

    `known` has earlier results by the number of the scan in the document. `told` receives lines for the parent.
    """

    known: dict[int, Scanned] = field(default_factory=dict)
    told: Callable[[dict[str, object]], None] = lambda _: None
    later: bool = False  # raise `Later` instead of reading
    scans: int = 0

    def read(self, draw: Callable[[], Image], resolution: float) -> Scanned:
        """The next scan of the document; `draw` makes its picture, of `resolution` dots per inch."""
        if not can_read_scans():
            return Scanned(failed=NOT_INSTALLED)
        number, self.scans = self.scans, self.scans + 1
        if number in self.known:
            return self.known[number]
        if number >= MOST_SCANS:
            return Scanned(failed=f"at most {MOST_SCANS:,} of a document are")
        if sum(bool(scan.failed) for scan in self.known.values()) >= MOST_FAILURES:
            return Scanned(failed=f"{MOST_FAILURES} others failed")
        if self.later:
            raise Later
        self.told({"scan": number})
        found = self.known[number] = _attempted(draw, resolution)
        self.told({"scan": number, "found": packed(found)})
        return found


def _attempted(draw: Callable[[], Image], resolution: float) -> Scanned:
    try:
        return recognise(draw(), resolution)
    except MemoryError:
        return Scanned(failed="reading it takes more memory than it may have")
    except Exception as error:  # any error of the libraries
        return Scanned(failed=f"reading it failed ({type(error).__name__})")


_course: Final = ContextVar("course", default=Course())  # noqa: B039  # nothing is kept in it without `following`


@contextmanager
def following(course: Course) -> Iterator[None]:
    """Makes `course` the present one."""
    token = _course.set(course)
    try:
        yield
    finally:
        _course.reset(token)


def read_scan(draw: Callable[[], Image], resolution: float) -> Scanned:
    """The next scan of the present document; see `Course.read`."""
    return _course.get().read(draw, resolution)


def reached(page: int, pages: int) -> None:
    """Reports a page of the present document."""
    _course.get().told({"page": page, "pages": pages})


@cache
def can_read_scans() -> bool:
    return all(map(find_spec, (ENGINE, "onnxruntime")))


def packed(scan: Scanned) -> str:
    """A scan as JSON; see `unpacked`."""
    return json.dumps(asdict(scan))


def unpacked(line: str) -> Scanned:
    """Raises `ValueError`, `TypeError` or `KeyError` for anything that `packed` did not write."""
    said = json.loads(line)
    words = tuple(
        Word(_box(word["box"]), str(word["text"]), float(word["size"]), int(word["order"])) for word in said["words"]
    )
    return Scanned(words, tuple(map(_box, said["rules"])), int(said["unclear"]), str(said["failed"]))


def _box(said: dict[str, float]) -> Box:
    return Box(float(said["left"]), float(said["bottom"]), float(said["right"]), float(said["top"]))


def recognise(picture: Image, resolution: float) -> Scanned:
    """Words and table lines of a picture of `resolution` dots per inch."""
    import numpy as np

    if min(picture.size) < _LEAST_SIDE:
        return Scanned()
    image = np.asarray(picture.convert("RGB"))
    found = _recogniser()(image)
    for turns in (1, 2):  # a page on its side, then one upside down
        if _is_turned(image, found, turns):
            image = np.ascontiguousarray(np.rot90(image, turns))
            found = _recogniser()(image)
    if found.boxes is None or not len(found.boxes):
        return Scanned()
    return _placed(image, found, _POINTS / resolution)


@cache
def _recogniser() -> Any:
    from rapidocr import RapidOCR

    threads = min(_MOST_THREADS, cores_each(1, shares_machine=True))
    return RapidOCR(
        params={
            "Global.log_level": "critical",
            "Global.text_score": 0.0,
            "Global.use_cls": False,  # single lines are misjudged
            "Global.return_word_box": True,
            "Global.max_side_len": LONGEST_SIDE,
            "Det.limit_type": "max",
            "Det.limit_side_len": _DETECTED_AT,
            "EngineConfig.onnxruntime.intra_op_num_threads": threads,
            "EngineConfig.onnxruntime.inter_op_num_threads": 1,
        }
    )


def _is_turned(image: NDArray[np.uint8], found: Any, turns: int) -> bool:
    """Whether most long lines run up or down (1 turn), or from right to left (2 turns)."""
    boxes = (
        []
        if found.boxes is None
        else [(box.min(axis=0).astype(int), box.max(axis=0).astype(int)) for box in found.boxes]
    )
    spans = sorted(boxes, key=lambda box: -max(box[1] - box[0]))[:_JUDGED]
    if turns == 1:
        upright = sum(bool(bottom - top > _UPRIGHT * (right - left)) for (left, top), (right, bottom) in spans)
        return 2 * upright > len(spans)
    crops = [image[max(0, top) : bottom, max(0, left) : right] for (left, top), (right, bottom) in spans]
    judged = [_recogniser()(crop, use_det=False, use_cls=True, use_rec=False).cls_res for crop in crops if crop.size]
    _recogniser().update_params(use_det=True, use_cls=False, use_rec=True)
    return 2 * sum(bool(each and each[0][0] == "180") for each in judged) > len(spans)


def _placed(image: NDArray[np.uint8], found: Any, scale: float) -> Scanned:
    """Lines as words in points; a skewed page is put straight."""
    import numpy as np

    edges = [box[1] - box[0] for box in found.boxes]
    angle = median(math.atan2(y, x) for x, y in edges)
    angle = angle if _ASKEW < abs(angle) < 0.3 else 0.0
    turn = np.array([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])
    height = len(image)
    words, unclear = list[Word](), 0
    parted = found.word_results if len(found.word_results) == len(found.boxes) else [()] * len(found.boxes)
    for box, text, score, parts in zip(found.boxes, found.txts, found.scores, parted, strict=True):
        across, down = math.dist(box[0], box[1]), math.dist(box[0], box[3])
        letters = len("".join(text.split()))
        if score < _CERTAIN or letters < _SPARSE * across / max(1.0, down) - 1:
            unclear += 1
            continue
        if [word for word, _, _ in parts] != text.split():  # scripts without blanks
            parts = [(" ".join(text.split()), score, box)]
        for word, _, corners in parts:
            placed = np.asarray(corners, float) @ turn
            (left, top), (right, bottom) = placed.min(axis=0), placed.max(axis=0)
            where = Box(scale * left, scale * (height - bottom), scale * right, scale * (height - top))
            words.append(Word(where, word, _LETTER * scale * down, len(words)))
    return Scanned(tuple(words), tuple(_rules(image, angle, scale)), unclear)


def _rules(image: NDArray[np.uint8], angle: float, scale: float) -> Iterator[Box]:
    """Straight level and upright lines."""
    import cv2

    height, width = image.shape[:2]
    grey = cv2.cvtColor(image, cv2.COLOR_RGB2GRAY)
    if angle:
        turning = cv2.getRotationMatrix2D((0, 0), math.degrees(angle), 1)
        grey = cv2.warpAffine(grey, turning, (width, height), borderValue=255)
    dark = cv2.adaptiveThreshold(grey, 255, cv2.ADAPTIVE_THRESH_MEAN_C, cv2.THRESH_BINARY_INV, 15, 10)
    shortest = max(3, round(_RULE * _POINTS / scale))
    for shape in ((shortest, 1), (1, shortest)):
        lines = cv2.morphologyEx(dark, cv2.MORPH_OPEN, cv2.getStructuringElement(cv2.MORPH_RECT, shape))
        _, _, boxes, _ = cv2.connectedComponentsWithStats(cv2.dilate(lines, None))
        for left, top, across, down, _ in boxes[1:].tolist():
            if min(across, down) * scale < 6:  # thicker ones are areas
                yield Box(scale * left, scale * (height - top - down), scale * (left + across), scale * (height - top))
