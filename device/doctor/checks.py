"""Findings from facts: what is well, what may be trouble, what is wrong, and what to do. Pure functions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from device.doctor.facts import (
    Access,
    Facts,
    Https,
    Keys,
    LibraryState,
    Machine,
    Model,
    Package,
    Port,
    Reach,
    SettingsFile,
)
from proto.messages import Side

Level = Literal["ok", "warn", "wrong"]

FIRST_YEAR: Final = 2025  # no release is older
PROGRAM: Final = 700 * 2**20  # bytes of memory that a daemon takes beside its language models
IMPORTED: Final = 4  # times the size of a quantised .gguf file that its import takes, about
TOPICS: Final = {"tokenizer": "tokenizer", "scorer_model": "scorer", "embedder": "embedder"}  # of others than `model`
_DECODING: Final = ("model", "draft_model", "local_target")  # settings of models that have keys and values of answers
EXPIRING: Final = 21  # days before its end from which a certificate should be renewed
LEAST_DISK, LITTLE_DISK = 64 * 2**20, 2**30
SLOW_MS: Final = 500.0  # of a round trip, from which answers often go on before the cloud is heard


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of a diagnosis; `remedy` says what to do, and is empty where all is well or the text says it."""

    level: Level
    topic: str
    text: str
    remedy: str = ""


def findings(facts: Facts) -> list[Finding]:
    """The diagnosis."""
    found = [] if facts.settings is None else [of_settings(facts.settings, facts.role)]
    if facts.keys is not None:
        found.append(of_keys(facts.keys, facts.role))
    if facts.access is not None:
        found.append(of_access(facts.access))
    if facts.https is not None:
        found += of_https(facts.https)
    if facts.port is not None:
        found.append(of_port(facts.port, facts.role))
    if facts.reach is not None:
        found.append(of_reach(facts.reach))
    if facts.status is not None:
        found.append(of_link(facts))
    found += [of_model(model) for model in facts.models]
    if facts.library is not None:
        found += of_library(facts.library, facts.role)
    if facts.machine is not None:
        found += of_machine(facts.machine, facts)
    if facts.start:
        found.append(of_start(facts.start))
    if facts.year < FIRST_YEAR:
        found.append(
            Finding("warn", "clock", f"this machine's clock says that it is {facts.year}", "set the clock; see `date`")
        )
    return [*found, *of_packages(facts.packages)]


def of_start(stages: Sequence[tuple[str, float]]) -> Finding:
    """Tells where the time of the last start went."""
    whole = sum(seconds for _, seconds in stages)
    parts = ", ".join(f"{work} {seconds:.1f}" for work, seconds in stages)
    return Finding("ok", "start", f"the last one took {whole:.1f} s: {parts}")


def of_settings(settings: SettingsFile, role: Side) -> Finding:
    """Checks that the settings can be read."""
    if settings.problem is not None:
        return Finding("wrong", "settings", settings.problem, f"mend that, and look at {_command('config', role)}")
    where = f"read from {settings.path}" if settings.there else f"the defaults: there is no {settings.path}"
    return Finding("ok", "settings", where)


def of_keys(keys: Keys, role: Side) -> Finding:
    """Checks that the link has keys."""
    pairing = "`dragon pair CODE`" if role == "device" else "`dragon pair --role cloud --address tcp://HOST:PORT`"
    if keys.kind == "none":
        return Finding("ok", "keys", "none are needed: no cloud takes part")
    if keys.kind == "plain":
        level: Level = "ok" if keys.loopback else "warn"
        remedy = "" if keys.loopback else "leave curve at auto, and pair the machines"
        return Finding(level, "keys", f"the link with {keys.address} is not encrypted: curve = 'off'", remedy)
    if keys.problem is not None:
        return Finding("wrong", "keys", keys.problem, "" if keys.kind == "shared" else f"or pair anew with {pairing}")
    if keys.kind == "shared":
        return Finding("ok", "keys", f"one pair, which this user's daemons share on {keys.address}")
    if not keys.peers:
        return Finding("wrong", "keys", "nobody is trusted, so nobody is let in", f"pair the machines with {pairing}")
    return Finding("ok", "keys", f"own key {keys.fingerprint}; trusted: {', '.join(keys.peers)}")


def of_access(access: Access) -> Finding:
    """Checks that the daemon is open to those alone who should ask it."""
    make = "make a key with `dragon api-keys create NAME`"
    if access.problem is not None:
        return Finding("wrong", "access", access.problem)
    if access.names:
        keys = f"{_count(len(access.names), 'API key')}: {', '.join(access.names)}"
        return Finding("ok", "access", f"{access.host} is open to {keys}")
    if access.loopback:
        return Finding("ok", "access", f"{access.host} is open to every program of this machine: there are no API keys")
    text = f"everybody who reaches {access.host} could question the private documents: there are no API keys"
    if access.insecure:
        return Finding("warn", "access", f"{text}, and insecure = true", f"{make}, and leave insecure out")
    return Finding("wrong", "access", text, f"{make}, or set host to 127.0.0.1")


def of_https(https: Https) -> Iterator[Finding]:
    """Checks that questions and answers are encrypted on their way, and clients accept the certificate."""
    if https.file is None:
        if not https.loopback:
            text = "keys, questions and answers travel in the clear: there is no certificate"
            remedy = "set tls_certificate and tls_key, unless a proxy in front has TLS"
            yield Finding("warn", "tls", text, remedy)
        return
    if https.problem is not None:
        yield Finding("wrong", "tls", https.problem, "set tls_certificate and tls_key to files that fit together")
        return
    for text in https.complaints:
        expired = https.days < 0 and "expired" in text
        remedy = "renew it, and restart the daemon" if expired else ""
        yield Finding("wrong" if expired else "warn", "tls", text, remedy)
    named = f"{https.file} for {', '.join(https.names) or 'no name'}"
    left = _count(https.days, "day")
    if 0 <= https.days < EXPIRING:
        yield Finding("warn", "tls", f"{named} expires in {left}", "renew it, and restart the daemon")
    elif https.days >= EXPIRING:
        yield Finding("ok", "tls", f"{named} holds for {left}")


def of_port(port: Port, role: Side) -> Finding:
    """Checks that the daemon can listen, or does."""
    setting = "port" if role == "device" else "bind"
    match port.state:
        case "daemon":
            return Finding("ok", "port", f"the daemon answers at {port.address}")
        case "free":
            return Finding("ok", "port", f"{port.address} is free; `dragon {role}` starts the daemon")
        case "starting":
            return Finding("ok", "port", f"{port.address}: {port.problem}")
        case "locked":
            text = f"a daemon at {port.address} does not take this user's key: {port.problem}"
            return Finding("wrong", "port", text, "is it another user's, or its data folder another one? Then stop it")
        case "unproven":
            text = f"what answers at {port.address} is not this machine's daemon: {port.problem}"
            return Finding("wrong", "port", text, "start the daemon anew if the certificate is a new one, else stop it")
        case "silent":
            text = f"what listens at {port.address} takes connections and does not answer"
            remedy = (
                f"if that is a daemon, it hangs or is suspended: end it, and start it anew; else set another {setting}"
            )
            return Finding("wrong", "port", text, remedy)
        case "taken":
            text = f"{port.address} is in use by another program"
            return Finding("wrong", "port", text, f"stop it, or set another {setting}")
        case "unusable":
            text = f"{port.address} can't be listened on: {port.problem}"
            return Finding("wrong", "port", text, f"set another {'host or port' if role == 'device' else 'bind'}")


def of_reach(reach: Reach) -> Finding:
    """Checks that the cloud's address leads to something that takes connections."""
    if not reach.resolved:
        text = f"the name in {reach.address} is not known here: {reach.problem}"
        return Finding("wrong", "cloud", text, "is it spelt right, and is there a network?")
    if reach.connected:
        return Finding("ok", "cloud", f"{reach.address} takes connections")
    text = f"{reach.address} takes no connections: {reach.problem}"
    if reach.loopback:
        return Finding("warn", "cloud", text, "start it with `dragon cloud`, or both daemons with `dragon up`")
    return Finding("wrong", "cloud", text, "is the cloud running, its bind not on loopback, and the port open?")


def of_link(facts: Facts) -> Finding:
    """The running device daemon's view of its cloud."""
    assert facts.status is not None
    cloud = facts.status["cloud"]
    state, detail, trip = cloud["state"], cloud["detail"], cloud["rtt_ms"]
    if state == "off":
        return Finding("ok", "link", detail or "no cloud")
    if state == "connected":
        text = "connected" if trip is None else f"connected, round trip {trip:.1f} ms"
        if trip is not None and trip > SLOW_MS:
            return Finding("warn", "link", text, "a slow network: raise patience if answers go on without the cloud")
        return Finding("ok", "link", text)
    remedy = "see Troubleshooting in docs/operations.md" if state == "refused" else "the device goes on trying"
    return Finding("wrong" if state == "refused" else "warn", "link", f"{state}: {detail}", remedy)


def of_model(model: Model) -> Finding:
    """Checks that a model's files are there."""
    named, topic = f"{model.setting} {model.name}", TOPICS.get(model.setting, "model")
    match model.state:
        case "there":
            return Finding("ok", topic, f"{named}: {in_bytes(model.size) if model.size else 'it is there'}")
        case "importable":
            return Finding("ok", topic, f"{named}: {in_bytes(model.size)}, imported at the first start")
        case "remote":
            text = f"{named}: not on this machine; the first start downloads it"
            return Finding("warn", topic, text, "be online at the first start, or name a folder")
        case "wrong":
            remedy = f"set {model.setting} to one that is there, or leave it out"
            return Finding("wrong", topic, f"{named}: {model.problem}", remedy)


def of_library(library: LibraryState, role: Side) -> Iterator[Finding]:
    """Checks that there are documents, and the embedding model is theirs."""
    add = _command("library add FOLDER", role)
    if library.embedder_problem is not None:
        yield Finding("wrong", "embedder", library.embedder_problem, "set embedder to one that is there")
    if library.problem is not None:
        yield Finding("wrong", "library", library.problem)
        return
    if not library.there or not library.documents:
        yield Finding("warn", "library", f"{library.folder} has no documents", f"add some with {add}")
        return
    counts = f"{library.folder}: {_count(library.documents, 'document')}, {_count(library.chunks, 'chunk')}"
    other = None not in (library.embedded_with, library.embedder) and library.embedded_with != library.embedder
    if other:
        text = f"{counts}, embedded with {library.embedded_with}, and {library.embedder} is configured"
        rebuild = _command("library add --rebuild FOLDER", role)
        yield Finding("wrong", "library", text, f"run {rebuild}, or configure the former embedder")
    elif library.skipped:
        text = f"{counts}; {_count(library.skipped, 'document')} could not be read"
        yield Finding("warn", "library", text, f"{_command('library status', role)} says why")
    else:
        yield Finding("ok", "library", counts)


def of_machine(machine: Machine, facts: Facts) -> Iterator[Finding]:
    """Checks that there is memory and room on the disk. A daemon that runs has its memory."""
    if facts.status is None and (facts.port is None or facts.port.state != "daemon"):
        yield _of_memory(machine, facts.models)
    text = f"{in_bytes(machine.disk)} free in {machine.data}"
    if machine.disk < LITTLE_DISK:
        level: Level = "wrong" if machine.disk < LEAST_DISK else "warn"
        yield Finding(level, "disk", text, "free some, or set data to a folder elsewhere")
    else:
        yield Finding("ok", "disk", text)


def of_packages(packages: tuple[Package, ...]) -> Iterator[Finding]:
    """Checks that the packages are those that this release was made for."""
    for each in packages:
        if each.installed is None:
            yield Finding("wrong", "packages", f"{each.name} is missing", f"pip install '{each.name}{each.wanted}'")
        elif not each.fits:
            text = f"{each.name} {each.installed} is not {each.wanted}, which this release was made for"
            yield Finding("warn", "packages", text, f"pip install '{each.name}{each.wanted}'")
    if all(each.fits for each in packages):
        yield Finding("ok", "packages", f"{len(packages)} are there in versions that fit")


def in_bytes(number: int) -> str:
    """A number of bytes for people: 98 MB, 1.6 GB."""
    for unit, size in (("GB", 10**9), ("MB", 10**6)):
        if number >= size:
            return f"{number / size:.1f} {unit}" if number < 10 * size else f"{number / size:.0f} {unit}"
    return f"{number / 1000:.0f} kB"


def _of_memory(machine: Machine, models: tuple[Model, ...]) -> Finding:
    needed = max(1, machine.processes) * PROGRAM + machine.processes * sum(map(_memory_of, models))
    who = f"the {machine.processes} workers take" if machine.processes > 1 else "the daemon takes"
    text = f"{in_bytes(machine.memory)} free; {who} about {in_bytes(needed)}"
    if machine.gpu:
        return Finding("ok", "memory", f"{text}, of which models lie on the GPU")
    if machine.memory < needed:
        fewer = ", or fewer workers" if machine.processes > 1 else ""
        return Finding("wrong", "memory", text, f"end other programs, or set a smaller model{fewer}")
    budgeted = any(model.memory is not None for model in models)  # a draft model's are in the budget then, too
    decoding = [each for each in models if each.setting in _DECODING and each.memory is None]
    answers = machine.kv * max(1, sum(not (budgeted and each.setting == "draft_model") for each in decoding))
    if machine.memory < needed + answers and machine.processes:
        text += f", and answers up to {in_bytes(answers)}"
        return Finding("warn", "memory", text, "end other programs, or set kv_bytes to less")
    return Finding("ok", "memory", text)


def _memory_of(model: Model) -> int:
    size = IMPORTED * model.size if model.state == "importable" else model.size
    return size if model.memory is None else min(size, model.memory)


def _command(words: str, role: Side) -> str:
    return f"`dragon {words}{'' if role == 'device' else ' --role cloud'}`"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
