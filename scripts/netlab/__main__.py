"""The network lab: two network namespaces joined by a link with delay, jitter, rate and loss."""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import NoReturn

from scripts.netlab import trace as traces
from scripts.netlab.helper import LabFailed
from scripts.netlab.lab import PROBES, NetLab
from scripts.netlab.links import SIDES
from scripts.netlab.namespaces import Unavailable, become_root
from scripts.netlab.self_check import report
from scripts.netlab.setting import KILOBIT, LinkSetting

BAD_INPUT = 2
MISSED = 1  # the self-check found another link than the one that was asked for
INTERRUPTED = 130
TERMINATED = 143


class OneLine(argparse.ArgumentParser):
    """Says what is wrong in one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(BAD_INPUT, f"{self.prog}: {message}\n")


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    signal.signal(signal.SIGTERM, _terminated)
    try:
        code: int = options.run(options)
    except (ValueError, Unavailable, LabFailed) as error:
        print(f"netlab: {error}", file=sys.stderr)
        return BAD_INPUT
    except KeyboardInterrupt:
        return INTERRUPTED
    return code


def check(options: argparse.Namespace) -> int:
    """Measure the link against its setting."""
    setting = _setting(options)
    if options.probes < 1:
        raise ValueError(f"--probes must be at least 1, not {options.probes}")
    become_root()
    with NetLab(setting) as lab:
        print(f"link      {lab.kind}, {' to '.join(f'{lab.address(side)} ({side})' for side in SIDES)}", flush=True)
        measured = lab.check(options.probes)
    print(report(measured))
    return 0 if measured.good else MISSED


def ask(options: argparse.Namespace) -> int:
    """Ask both daemons in the lab, with the sample libraries of the demonstration."""
    setting = _setting(options)
    trace = traces.read_trace(options.trace) if options.trace else None
    become_root()  # before a library starts a thread
    import httpx

    from device.cli.render import figures_line
    from scripts.daemons import Pair
    from scripts.demo.__main__ import SAMPLES, fill_libraries

    with tempfile.TemporaryDirectory(prefix="dragon-netlab-") as folder, NetLab(setting) as lab:
        fill_libraries(Path(folder), SAMPLES)
        try:
            with Pair(Path(folder), lab=lab) as pair:
                print(f"{lab.kind}: {lab.setting}")
                if trace is not None:
                    lab.replay(trace)
                for question in options.questions:
                    answer = pair.complete(question)
                    told = answer["dragon"]
                    rtt = "never measured" if told["rtt_ms"] is None else f"{told['rtt_ms']:.0f} ms"
                    print(f"{question}\n  {answer['choices'][0]['message']['content'].strip()}")
                    print(f"  {figures_line(told)}, round trip {rtt}", flush=True)
                    for note in told["notes"]:
                        print(f"  {note}")
        except (RuntimeError, httpx.HTTPError) as error:
            raise LabFailed(str(error)) from None
    return 0


def write(options: argparse.Namespace) -> int:
    """A trace file on stdout."""
    setting = _setting(options)
    match options.shape:
        case "sinusoid":
            trace = traces.sinusoid(setting, options.seconds, options.amplitude, options.period)
        case "random":
            trace = traces.random_levels(setting, options.seconds, options.amplitude, options.seed)
        case "markov":
            rates = KILOBIT * options.fast, KILOBIT * options.slow
            states = traces.TwoStates(*rates, options.worsens, options.recovers, options.dwell)
            trace = traces.markov(setting, options.seconds, states, options.seed)
        case "step":
            trace = traces.step(setting, replace(setting, rtt=options.to / 1000), options.at)
        case _:
            trace = traces.outage(setting, options.at, options.seconds)
    traces.write_trace(trace, sys.stdout)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = OneLine(prog="python -m scripts.netlab", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    measuring = commands.add_parser("check", help="measure the link against its setting")
    _add_setting(measuring)
    measuring.add_argument("--probes", type=int, default=PROBES, help=f"round trips to measure (default {PROBES})")
    measuring.set_defaults(run=check)

    asking = commands.add_parser("ask", help="ask both daemons, joined by the link, about the sample libraries")
    _add_setting(asking)
    asking.add_argument("--trace", type=Path, metavar="FILE", help="settings over time, from the first question on")
    asking.add_argument("questions", nargs="+", metavar="QUESTION")
    asking.set_defaults(run=ask)

    writing = commands.add_parser("trace", help="write settings over time to stdout")
    shapes = writing.add_subparsers(required=True, metavar="SHAPE", dest="shape")
    for name, what in (("sinusoid", "the round trip swings"), ("random", "another round trip every second")):
        shape = shapes.add_parser(name, help=what)
        _add_setting(shape)
        shape.add_argument("--seconds", type=float, required=True, help="length of the trace")
        shape.add_argument("--amplitude", type=float, default=traces.AMPLITUDE, help="share of --rtt (default 0.2)")
        if name == "sinusoid":
            shape.add_argument("--period", type=float, default=traces.PERIOD, help="seconds (default 20π)")
        else:
            shape.add_argument("--seed", type=int, default=0)
        shape.set_defaults(run=write)
    _add_markov(shapes.add_parser("markov", help="the uplink rate goes to and fro between two values"))
    step = shapes.add_parser("step", help="another round trip from some time on")
    _add_setting(step)
    step.add_argument("--to", type=float, required=True, metavar="MS", help="the round trip afterwards")
    outage = shapes.add_parser("outage", help="nothing arrives for some time")
    _add_setting(outage)
    outage.add_argument("--seconds", type=float, required=True, help="length of the outage")
    for shape in (step, outage):
        shape.add_argument("--at", type=float, required=True, metavar="SECONDS", help="when it happens")
        shape.set_defaults(run=write)
    return parser


def _add_markov(shape: argparse.ArgumentParser) -> None:
    _add_setting(shape, uplink=False)
    usual = traces.TwoStates()
    shape.add_argument("--seconds", type=float, required=True, help="length of the trace")
    for name, rate in (("fast", usual.fast / KILOBIT), ("slow", usual.slow / KILOBIT)):
        told = f"uplink's kb/s in the {name} state (default {rate:g})"
        shape.add_argument(f"--{name}", type=float, default=rate, metavar="KBPS", help=told)
    for name, told in (("worsens", "slow follows fast"), ("recovers", "fast follows slow")):
        shape.add_argument(f"--{name}", type=float, required=True, metavar="SHARE", help=f"probability that {told}")
    told = "how long a state holds before the next draw (default 1)"
    shape.add_argument("--dwell", type=float, default=usual.dwell, metavar="SECONDS", help=told)
    shape.add_argument("--seed", type=int, default=0)
    shape.set_defaults(run=write, uplink=None)


def _add_setting(parser: argparse.ArgumentParser, uplink: bool = True) -> None:
    parser.add_argument("--rtt", type=float, required=True, metavar="MS", help="round trip, milliseconds")
    parser.add_argument(
        "--jitter", type=float, default=0.0, metavar="SHARE", help="of each packet's delay, e.g. 0.2: ±20 %%"
    )
    for name, way in (("uplink", "device to cloud"), ("downlink", "cloud to device")):
        if name == "downlink" or uplink:
            parser.add_argument(
                f"--{name}", type=float, metavar="KBPS", help=f"kilobits per second, {way} (default: no limit)"
            )
    parser.add_argument("--loss", type=float, default=0.0, metavar="SHARE", help="of the packets, e.g. 0.01")


def _setting(options: argparse.Namespace) -> LinkSetting:
    uplink, downlink = (None if rate is None else KILOBIT * rate for rate in (options.uplink, options.downlink))
    return LinkSetting(options.rtt / 1000, options.jitter, uplink, downlink, options.loss)


def _terminated(number: int, frame: FrameType | None) -> NoReturn:
    """Exit on a signal, so that everything that is open gets closed."""
    sys.exit(TERMINATED)


if __name__ == "__main__":
    sys.exit(main())
