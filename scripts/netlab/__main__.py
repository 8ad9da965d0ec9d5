"""Asks both daemons about the sample libraries, joined by a link with delay, jitter, rates and loss."""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
from pathlib import Path
from typing import NoReturn

import httpx

from device.cli.render import figures_line
from scripts.daemons import Pair
from scripts.demo.__main__ import SAMPLES, fill_libraries
from scripts.netlab.lab import NetLab
from scripts.netlab.setting import KILOBIT, LinkSetting, Trace, read_trace

BAD_INPUT = 2
INTERRUPTED = 130
TERMINATED = 143


class OneLine(argparse.ArgumentParser):
    """Says what is wrong in one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(BAD_INPUT, f"{self.prog}: {message}\n")


def main() -> int:
    """Read the options and ask."""
    parser = OneLine(prog="python -m scripts.netlab", description=__doc__)
    parser.add_argument("--rtt", type=float, required=True, metavar="MS", help="round trip, milliseconds")
    parser.add_argument("--jitter", type=float, default=0.0, metavar="SHARE", help="of each delay, e.g. 0.2: ±20 %%")
    parser.add_argument("--uplink", type=float, metavar="KBPS", help="kilobits per second, device to cloud")
    parser.add_argument("--downlink", type=float, metavar="KBPS", help="the same, cloud to device")
    parser.add_argument("--loss", type=float, default=0.0, metavar="SHARE", help="of the packets, e.g. 0.01")
    parser.add_argument("--trace", type=Path, metavar="FILE", help="settings over time, from the first question on")
    parser.add_argument("questions", nargs="+", metavar="QUESTION")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(TERMINATED))  # what is open gets closed
    uplink, downlink = (None if rate is None else KILOBIT * rate for rate in (options.uplink, options.downlink))
    try:
        setting = LinkSetting(options.rtt / 1000, options.jitter, uplink, downlink, options.loss)
        ask(setting, read_trace(options.trace) if options.trace else None, options.questions)
    except (ValueError, RuntimeError, httpx.HTTPError) as error:
        print(f"netlab: {error}", file=sys.stderr)
        return BAD_INPUT
    except KeyboardInterrupt:
        return INTERRUPTED
    return 0


def ask(setting: LinkSetting, trace: Trace | None, questions: list[str]) -> None:
    """Ask, and print the answers with their latency and the round trip that the daemons measured."""
    with tempfile.TemporaryDirectory(prefix="dragon-netlab-") as folder, NetLab(setting) as lab:
        fill_libraries(Path(folder), SAMPLES)
        with Pair(Path(folder), lab=lab) as pair:
            print(f"{lab.kind}: {lab.setting}")
            if trace is not None:
                lab.replay(trace)
            for question in questions:
                answer = pair.complete(question)
                told = answer["dragon"]
                rtt = "never measured" if told["rtt_ms"] is None else f"{told['rtt_ms']:.0f} ms"
                print(f"{question}\n  {answer['choices'][0]['message']['content'].strip()}")
                print(f"  {figures_line(told)}, round trip {rtt}", flush=True)
                for note in told["notes"]:
                    print(f"  {note}")


if __name__ == "__main__":
    sys.exit(main())
