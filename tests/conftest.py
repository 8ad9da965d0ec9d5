"""Settings of every test: one thread, bytecode kept, no network for models, no clock for hypothesis, long files first.

The environment is set before anything imports torch or transformers, which read it once.
"""

from __future__ import annotations

import gc
import os
import signal
import sys

# Every worker and every daemon would compile all modules again, and pytest rewrite all asserts: seconds in each.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["MKL_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TRANSFORMERS_OFFLINE"] = "1"
os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
# The default model answers about real texts, at a hundred times the cost.
os.environ["DRAGON_DEVICE_MODEL"] = os.environ["DRAGON_CLOUD_MODEL"] = "embedded"
os.environ["DRAGON_DEVICE_SEARCH"] = os.environ["DRAGON_CLOUD_SEARCH"] = "dense"

import random
from itertools import groupby

import pytest
from hypothesis import HealthCheck, settings

from tests.support.missing import pytest_sessionfinish

__all__ = ["pytest_sessionfinish"]

sys.dont_write_bytecode = False

# How long an example takes says something about the machine, not about the code. CI tries 100 examples.
settings.register_profile("local", deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=25)
settings.register_profile("ci", settings.get_profile("local"), derandomize=True, database=None, max_examples=100)
settings.load_profile("ci" if os.environ.get("CI") else "local")

# Files that take longest: with one of these last, one worker would go on alone for minutes.
LONG = (
    "scripts/test_demo.py",
    "daemons/",
    "common/methods/edgellm/test_edgellm.py",
    "common/engine/model/",
    "cloud/",
    "scripts/simulation/",
    "common/methods/",
    "common/engine/",
    "common/library/",
    "attacks/",
    "scripts/",
    "device/page/test_pair.py",
    "device/test_",
)


# What takes processes of its own, a browser, or long: `make test-processes` has it.
PROCESSES = (
    "attacks/",
    "cloud/gateway/test_librarian.py",
    "common/engine/kv/test_document_store.py",
    "common/engine/model/test_gguf_progress.py",
    "common/engine/model/test_imports.py",
    "common/engine/weights/test_memory.py",
    "common/library/readers/test_isolated.py",
    "common/library/test_commands.py",
    "common/library/test_faults.py",
    "common/library/test_processes.py",
    "common/library/test_watching.py",
    "common/methods/edgellm/test_edgellm_ends.py",
    "daemons/",
    "device/cli/test_settings.py",
    "device/cli/test_streams.py",
    "device/cli/test_terminal.py",
    "device/page/",
    "scripts/netlab/test_command.py",
    "scripts/netlab/test_lab.py",
    "scripts/test_container.py",
    # Laws and faults of every method, models of every format, and clouds that are late: minutes in one process.
    "cloud/test_chosen_documents.py",
    "cloud/test_end_of_sequence.py",
    "cloud/test_long_documents.py",
    "cloud/test_long_messages.py",
    "cloud/test_neighbours.py",
    "cloud/test_processors.py",
    "cloud/test_provisional.py",
    "cloud/test_rapid.py",
    "cloud/test_reconnecting.py",
    "cloud/test_relief.py",
    "cloud/test_request_files.py",
    "cloud/test_verifying.py",
    "common/daemon/test_idle_profile.py",
    "common/daemon/test_state_agreement.py",
    "common/engine/kv/test_claims.py",
    "common/engine/kv/test_memory.py",
    "common/engine/model/test_gguf.py",
    "common/engine/model/test_interruption.py",
    "common/engine/model/test_same_bits.py",
    "common/engine/model/test_streaming.py",
    "common/engine/model/test_trees.py",
    "common/engine/model/test_windows.py",
    "common/engine/test_inflated.py",
    "common/engine/test_peer_shares.py",
    "common/library/test_approximate_file.py",
    "common/library/test_flipped_bits.py",
    "common/library/test_selection.py",
    "common/methods/aggregate/test_law.py",
    "common/methods/aggregate/test_tree.py",
    "common/methods/drafted/test_adaptive_law.py",
    "common/methods/drafted/test_deferred.py",
    "common/methods/drafted/test_draft_verify.py",
    "common/methods/drafted/test_eager.py",
    "common/methods/drafted/test_faults.py",
    "common/methods/drafted/test_law.py",
    "common/methods/drafted/test_lengths.py",
    "common/methods/drafted/test_rapid.py",
    "common/methods/test_kv_memory.py",
    "common/methods/test_shortlist.py",
    "common/methods/edgellm/test_edgellm.py",
    "device/cli/test_profile.py",
    "device/test_lying_cloud.py",
    "device/test_patience.py",
    "scripts/simulation/test_rounds.py",
    "scripts/simulation/test_slow_link.py",
    "scripts/simulation/test_token_identity.py",
)
# What `make test` has of these nevertheless: tests in one process, and a smoke test of each subsystem.
QUICK = (
    "attacks/test_frames.py",
    "attacks/test_link_attacks.py::test_a_good_session_does_not_notice[malformed-curve]",
    "daemons/test_document_sender.py",
    "daemons/test_free_ports.py",
    "daemons/test_pairing.py",
    "daemons/test_readme.py",
    "device/page/test_chat.py::TestAsking::test_by_keyboard_alone",
    "device/page/test_files.py",
    "scripts/netlab/test_lab.py::TestLink::test_bytes_arrive_in_order_whatever_the_jitter",
)


# Until all tests are collected nothing is garbage, and afterwards none of that is.
gc.disable()


def pytest_collection_finish(session: pytest.Session) -> None:
    gc.freeze()
    gc.enable()


def pytest_configure(config: pytest.Config) -> None:
    # A shell makes background jobs deaf to Ctrl-C, and the commands that tests interrupt would inherit that.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # Otherwise xdist begins with the files that have the most tests, which are short ones.
    config.option.loadscopereorder = False


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--seed", type=int, help="run files, and tests within a file, in a random order")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put the files of `LONG` first, or all in the order of a seed. It is the same in every process."""
    for item in items:
        if _rank(PROCESSES, item) < len(PROCESSES) and _rank(QUICK, item) == len(QUICK):
            item.add_marker(pytest.mark.processes)
    seed = config.getoption("seed")
    if seed is None:
        items.sort(key=lambda item: _rank(LONG, item))
    else:
        files = [list(tests) for _, tests in groupby(items, lambda item: item.path)]
        shuffled = random.Random(seed)
        shuffled.shuffle(files)
        for tests in files:
            shuffled.shuffle(tests)
        items[:] = [item for tests in files for item in tests]


def _rank(starts: tuple[str, ...], item: pytest.Item) -> int:
    """Index of the first of `starts` with which the place of a test begins; their number if there is none."""
    place = item.nodeid.partition("tests/")[2]
    return next((number for number, start in enumerate(starts) if place.startswith(start)), len(starts))
