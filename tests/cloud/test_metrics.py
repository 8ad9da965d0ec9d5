"""Metrics of a device and a cloud behind their answers."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import pytest

from common.answer.request import RequestError, RequestFile
from proto.messages import Error
from tests.cloud.test_giving_up import OPEN
from tests.cloud.town import Resident, Town
from tests.daemons.streaming import wait_until
from tests.support.metrics import Metrics

WORDS = ("Quorbelin", "Vestrimax", "Zandolith")  # in a question, in a document, and its name


@pytest.fixture(scope="module")
def own(town: Town) -> Resident:
    """A device whose counts are those of this module alone."""
    return town.device("counted")


def cloud(town: Town) -> Metrics:
    return Metrics(town.sessions.metrics.text().decode())


def of(device: Resident) -> Metrics:
    return Metrics(device.engine.metrics().decode())


class TestDevice:
    def test_an_answer_is_counted_as_its_report_says(self, own: Resident) -> None:
        before = of(own)
        report = own.ask("Where is my dance class?", max_tokens=12).report
        after = of(own)

        def more(name: str, **labels: str) -> float:
            return after.of(name, **labels) - before.of(name, **labels)

        assert more("dragon_generation_tokens_total") == report.tokens > 1
        assert more("dragon_prompt_tokens_total") == report.prompt_tokens
        for side, of_side in (("device", report.device), ("cloud", report.cloud)):
            assert more("dragon_spec_decode_num_draft_tokens_total", side=side) == of_side.drafted > 0
            assert more("dragon_spec_decode_num_accepted_tokens_total", side=side) == of_side.accepted
            assert more("dragon_rollbacks_total", side=side) == of_side.rollbacks
        assert more("dragon_answer_sent_bytes_total") == report.sent.exchange > 0
        assert more("dragon_answer_received_bytes_total") == report.received_bytes > 0
        assert more("dragon_request_success_total") == 1
        assert more("dragon_time_to_first_token_seconds_sum") == pytest.approx(report.ttft)
        assert more("dragon_inter_token_latency_seconds_count") == report.tokens - 1
        assert more("dragon_e2e_request_latency_seconds_sum") == pytest.approx(report.seconds)
        assert more("dragon_answers_total", method="speculative", placement="device") == 1
        assert more("dragon_decode_passes_total") > 0
        assert more("dragon_decode_rows_total") >= more("dragon_decode_passes_total")
        assert more("dragon_link_received_bytes_total", message="Draft") > 0

    def test_state_is_read_when_it_is_asked_for(self, own: Resident) -> None:
        running = own.begin("Where is my dance class?", max_tokens=200)
        next(iter(running))
        found = of(own)
        assert found["dragon_num_requests_running"] == 1
        assert 0 < found["dragon_kv_cache_usage_perc"] < 1
        assert found["dragon_cloud_connected"] == 1
        running.cancel()
        list(running)
        assert of(own).of("dragon_request_success_total", finished_reason="cancelled") == 1

    def test_refusals_are_failures_of_their_kind(self, own: Resident) -> None:
        before = of(own).of("dragon_request_failures_total", kind="invalid")
        with pytest.raises(RequestError):
            own.begin("Which?", device_documents=("nowhere/*",))
        assert of(own).of("dragon_request_failures_total", kind="invalid") == before + 1

    def test_build_and_every_kind_are_there_from_the_start(self, own: Resident) -> None:
        found = of(own)
        assert found.of("dragon_build_info", role="device", model=own.side.decoder.identity) == 1
        assert found.of("dragon_request_failures_total", kind="internal") == 0


def test_no_text_of_an_answer_is_told(town: Town, own: Resident, tmp_path: Path) -> None:
    question, document, name = WORDS
    file = RequestFile(name=f"{name}.md", content=f"The {document} is at the {question}.".encode())
    told = own.ask(f"Where is the {question}?", files=(file,), max_tokens=8, stop=(document,))
    assert any(name in source.title for source in told.report.sources)
    for text in (own.engine.metrics().decode(), town.sessions.metrics.text().decode()):
        assert "Where" not in text
        for word in (*WORDS, *(source.title for source in told.report.sources), str(town.data)):
            assert word not in text, word


class TestCloud:
    def test_a_session_is_counted_at_its_end(self, town: Town, own: Resident) -> None:
        town.check_that_all_is_free()  # of other tests' answers, too
        before = cloud(town)
        report = own.ask("Where is my dance class?", max_tokens=10).report
        town.check_that_all_is_free()
        after = cloud(town)

        def more(name: str, **labels: str) -> float:
            return after.of(name, **labels) - before.of(name, **labels)

        assert more("dragon_request_success_total", finished_reason="closed") == 1
        assert more("dragon_answers_total", method="speculative", placement="device") == 1
        assert more("dragon_generation_tokens_total") == report.tokens
        assert more("dragon_prompt_tokens_total") > 0
        assert more("dragon_spec_decode_num_draft_tokens_total", side="cloud") == report.cloud.drafted > 0
        assert more("dragon_rollbacks_total", side="cloud") == report.cloud.rollbacks
        assert more("dragon_time_to_first_token_seconds_count") == 1
        assert more("dragon_request_queue_time_seconds_count") == 1
        assert more("dragon_e2e_request_latency_seconds_count") == 1
        assert more("dragon_link_sent_bytes_total", message="Draft") > 0
        assert after["dragon_peers_connected"] >= 1
        assert after["dragon_num_requests_running"] == 0

    @pytest.mark.parametrize("method", ["fetch-text", "sequence-wise", "coupled"])
    def test_so_is_one_of_another_method(self, town: Town, own: Resident, method: str) -> None:
        town.check_that_all_is_free()
        before = cloud(town)
        own.ask("Where is my dance class?", method=method, max_tokens=6)
        town.check_that_all_is_free()
        after = cloud(town)
        assert after.of("dragon_answers_total", method=method) == before.of("dragon_answers_total", method=method) + 1
        ended = [found.of("dragon_e2e_request_latency_seconds_count") for found in (before, after)]
        assert ended[1] == ended[0] + 1

    def test_what_devices_are_refused_is_counted_by_this_sides_own_words(self, town: Town) -> None:
        stranger = town.stranger()
        before = cloud(town)
        stranger.send(replace(OPEN, method="quixotic", session=5))
        assert stranger.code() == "unservable"
        after = cloud(town)
        kinds = [found.of("dragon_request_failures_total", kind="unservable") for found in (before, after)]
        assert kinds[1] == kinds[0] + 1
        assert "quixotic" not in after.words

    def test_a_code_that_nobody_listed_adds_no_series(self, town: Town) -> None:
        series = len(cloud(town).words)
        town.sessions.metrics.sent(Error(7, "quixotic", "It is made up."))
        found = cloud(town)
        assert found.of("dragon_request_failures_total", kind="other") == 1
        assert len(found.words) == series


def test_both_sides_name_an_answer_alike(town: Town, own: Resident, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    report = own.ask("Where is my dance class?", max_tokens=4).report
    town.check_that_all_is_free()
    wait_until(lambda: f"answer {report.request} ended after" in caplog.text, "the cloud has told it")
    assert len(report.request) == 8
