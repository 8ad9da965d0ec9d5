"""API keys on disk: made once, hashed, private, and refused whole where there is any doubt."""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import os
import re
import stat
import threading
from pathlib import Path

import pytest

from device.access.admission import ApiKeyGate
from device.access.api_keys import MOST_KEYS, ApiKeyError, ApiKeyFiles, hash_of, new_key, today
from tests.device.key_files import admission_of, write_keys

HASH = "0" * 64


@pytest.fixture
def files(key_files: ApiKeyFiles) -> ApiKeyFiles:
    return key_files


def names(files: ApiKeyFiles) -> list[str]:
    return [key.name for key in files.all()]


class TestFiles:
    def test_a_key_is_long_random_and_stored_nowhere(self, files: ApiKeyFiles) -> None:
        first, second = files.create("laptop"), files.create("page")
        for key in (first, second):
            assert re.fullmatch(r"dragon-[A-Za-z0-9_-]{43}", key)
        assert first != second
        for path in files.path.parent.iterdir():
            assert first not in path.read_text() and first.removeprefix("dragon-") not in path.read_text()
        stored = files.all()[0]
        assert (stored.name, stored.created) == ("laptop", today())
        assert stored.sha256 == hashlib.sha256(first.encode()).hexdigest()
        assert stored.sha256 not in repr(stored)

    def test_the_files_are_their_users_alone(self, files: ApiKeyFiles) -> None:
        before = os.umask(0)
        try:
            files.create("laptop")
            files.renew_local()
        finally:
            os.umask(before)
        folder = files.path.parent
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}

    def test_a_name_is_taken_once_and_free_again_when_revoked(self, files: ApiKeyFiles) -> None:
        first = files.create("laptop")
        with pytest.raises(ApiKeyError, match="already"):
            files.create("laptop")
        files.create("page")
        files.revoke("laptop")
        assert names(files) == ["page"]
        assert files.create("laptop") != first
        with pytest.raises(ApiKeyError, match="no key called phone"):
            files.revoke("phone")

    @pytest.mark.parametrize("name", ["", "a b", "../x", "-x", "x" * 65, "é", "a\n"], ids=ascii)
    def test_what_is_no_name(self, files: ApiKeyFiles, name: str) -> None:
        with pytest.raises(ApiKeyError, match="is not a valid name"):
            files.create(name)
        assert not files.path.exists()

    def test_there_is_a_limit(self, files: ApiKeyFiles) -> None:
        write_keys(files, **{f"k{number}": str(number) for number in range(MOST_KEYS)})
        with pytest.raises(ApiKeyError, match="revoke some"):
            files.create("more")

    def test_several_at_once_lose_none(self, files: ApiKeyFiles) -> None:
        made = [threading.Thread(target=files.create, args=(f"k{number}",)) for number in range(8)]
        for thread in made:
            thread.start()
        for thread in made:
            thread.join()
        assert sorted(names(files)) == [f"k{number}" for number in range(8)]

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "{",
            "[]",
            "{}",
            '{"keys": 1}',
            '{"keys": [1]}',
            '{"keys": [{}]}',
            json.dumps({"keys": [{"name": "a", "sha256": "0", "created": "2026-11-01"}]}),
            json.dumps({"keys": [{"name": "a", "sha256": 7, "created": "2026-11-01"}]}),
            json.dumps({"keys": [{"name": "a", "sha256": HASH, "created": "yesterday"}]}),
            json.dumps({"keys": [{"name": "a b", "sha256": HASH, "created": "2026-11-01"}]}),
            json.dumps({"keys": 2 * [{"name": "a", "sha256": HASH, "created": "2026-11-01"}]}),
            "[" * 100_000,
            " " * 2**21,
        ],
        ids=lambda text: text[:40].strip() or f"{len(text)} spaces",
    )
    def test_a_damaged_file_is_refused_and_not_overwritten(self, files: ApiKeyFiles, text: str) -> None:
        write_keys(files)
        files.path.write_text(text)
        for refused in (files.all, lambda: files.create("x"), lambda: files.revoke("a"), lambda: ApiKeyGate(files)):
            with pytest.raises(ApiKeyError, match="are damaged: delete that file"):
                refused()
        assert files.path.read_text() == text

    @pytest.mark.parametrize("mode", [0o640, 0o602, 0o666], ids=oct)
    def test_a_file_that_others_can_read_or_change_is_refused(self, files: ApiKeyFiles, mode: int) -> None:
        files.create("laptop")
        files.path.chmod(mode)
        with pytest.raises(ApiKeyError, match="chmod 600"):
            files.all()

    def test_a_folder_that_can_not_be_written(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        with pytest.raises(ApiKeyError, match="can't be written"):
            ApiKeyFiles(tmp_path / "file").create("laptop")

    def test_the_local_key_is_another_one_each_time(self, files: ApiKeyFiles) -> None:
        assert files.local() is None
        first = files.renew_local()
        assert files.local() == first != files.renew_local()
        files.path.with_name("local-api-key.json").chmod(0o644)
        assert files.local() is None


class TestAdmission:
    def test_without_keys_none_is_wanted(self, files: ApiKeyFiles) -> None:
        assert not ApiKeyGate(files).wanted

    def test_creation_and_revocation_hold_at_once(self, files: ApiKeyFiles) -> None:
        admission = ApiKeyGate(files)
        first = files.create("laptop").encode()
        assert admission.wanted and admission.admitted(first)
        second = files.create("page").encode()
        assert admission.admitted(second) and admission.admitted(first)
        files.revoke("laptop")
        assert admission.admitted(second) and not admission.admitted(first)

    @pytest.mark.parametrize("end", ["revoked", "deleted", "damaged", "readable by others", "a folder"])
    def test_nothing_opens_a_daemon_that_runs(
        self, files: ApiKeyFiles, caplog: pytest.LogCaptureFixture, end: str
    ) -> None:
        key = files.create("laptop")
        admission = ApiKeyGate(files)
        match end:
            case "revoked":
                files.revoke("laptop")
            case "deleted":
                files.path.unlink()
            case "damaged":
                files.path.write_text("{")
            case "readable by others":
                files.path.chmod(0o644)
            case _:
                files.path.unlink()
                files.path.mkdir()
        for _ in range(100):
            assert admission.wanted
            assert not admission.admitted(key.encode())
        assert admission.broken == (end not in ("revoked", "deleted"))
        assert len(caplog.records) == 1
        assert key not in caplog.text and hash_of(key.encode()) not in caplog.text

    def test_a_mended_file_counts_again(self, files: ApiKeyFiles) -> None:
        key = files.create("laptop").encode()
        admission = ApiKeyGate(files)
        good = files.path.read_text()
        files.path.write_text("{")
        assert not admission.admitted(key)
        files.path.write_text(good)
        assert admission.admitted(key) and not admission.broken

    def test_the_local_key_counts_whatever_becomes_of_the_others(self, files: ApiKeyFiles) -> None:
        files.create("laptop")
        before, admission = ApiKeyGate(files), ApiKeyGate(files)
        before.open_locally()
        stale = str(files.local()).encode()
        admission.open_locally()
        local = str(files.local()).encode()
        files.path.write_text("{")
        assert admission.admitted(local) and not admission.admitted(stale)

    def test_all_keys_are_compared_whichever_fits(self, files: ApiKeyFiles, monkeypatch: pytest.MonkeyPatch) -> None:
        write_keys(files, first="one", second="two", third="three")
        admission = ApiKeyGate(files)
        compared: list[tuple[str, str]] = []
        compare = hmac.compare_digest

        def counting(known: str, given: str) -> bool:
            compared.append((known, given))
            return compare(known, given)

        monkeypatch.setattr(hmac, "compare_digest", counting)
        for key, fits in (("one", True), ("three", True), ("on", False), ("", False), (new_key(), False)):
            compared.clear()
            assert admission.admitted(key.encode()) == fits
            assert len(compared) == 3 and {len(digest) for pair in compared for digest in pair} == {64}

    def test_a_folder_that_can_not_be_written_is_told_and_keeps_nobody_out(
        self, files: ApiKeyFiles, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        admission = admission_of(files, "right")

        def full(*_: object) -> None:
            raise ApiKeyError("no space")

        monkeypatch.setattr(files, "_store", full)
        caplog.set_level(logging.WARNING)
        admission.open_locally()
        assert admission.admitted(b"right")
        assert [record.levelno for record in caplog.records] == [logging.WARNING]
