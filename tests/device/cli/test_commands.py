"""The `dragon` command against a real server: outputs, failures and exit codes."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import threading
from contextlib import ExitStack
from typing import Any

import pytest
import zmq

from device.http.options import HttpOptions
from device.http.server import HttpServer
from tests.device.cli.conftest import ROOT, Dragon, Typed, closed_port
from tests.device.conftest import Serve
from tests.device.table_engine import WAIT, TableEngine

AFTER = (
    'From Diary (device): "one two three"\n'
    'From Atlas (cloud): "one two three"\n'
    "3 tokens, the first after 0.20 s, then 10.0 ms each; "
    "1,442 B left this device: the question, earlier turns, the answer's tokens, control messages\n"
)


class TestAsk:
    def test_answer_on_stdout_and_footnotes_on_stderr(self, dragon: Dragon, server: HttpServer) -> None:
        done = dragon("ask", "one two three", "--url", server.url)
        assert (done.returncode, done.stdout, done.stderr) == (0, "one two three\n", AFTER)

    def test_question_from_stdin_and_url_from_the_environment(
        self, dragon: Dragon, server: HttpServer, engine: TableEngine
    ) -> None:
        done = dragon("ask", "-", given="one two three\n", DRAGON_URL=server.url)
        assert (done.returncode, done.stdout) == (0, "one two three\n")
        assert engine.generation().request.question == "one two three"

    def test_question_from_a_pipe(self, dragon: Dragon, server: HttpServer) -> None:
        assert dragon("ask", "--url", server.url, given="one two\n").stdout == "one two\n"

    def test_without_a_question_a_terminal_is_not_waited_for(self, dragon: Dragon, server: HttpServer) -> None:
        done = dragon("ask", "--url", server.url, given=Typed("never read"))
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
        assert "there is no question" in done.stderr

    def test_an_address_without_a_scheme(self, dragon: Dragon, server: HttpServer) -> None:
        assert dragon("ask", "one", "--url", server.url.removeprefix("http://")).stdout == "one\n"
        port = server.url.rpartition(":")[2]
        assert dragon("ask", "one", DRAGON_URL=f"localhost:{port}").stdout == "one\n"

    def test_options_reach_the_engine(self, dragon: Dragon, server: HttpServer, engine: TableEngine) -> None:
        options = (
            "--sources device --seed 3 --temperature 0.5 --max-tokens 4 --sampler paper --placement cloud "
            "--privacy balanced --stop x --stop y --documents 2 --method token-wise --aggregation context"
        )
        assert dragon("ask", "q", *options.split(), "--url", server.url).returncode == 0
        request = engine.generation().request
        assert (request.sources, request.seed, request.temperature) == ("device", 3, 0.5)
        assert (request.max_tokens, request.sampler, request.placement) == (4, "paper", "cloud")
        assert (request.privacy, request.stop, request.documents) == ("balanced", ("x", "y"), 2)
        assert (request.method, request.aggregation) == ("token-wise", "context")

    def test_options_left_out_are_not_sent(self, dragon: Dragon, serve: Serve, engine: TableEngine) -> None:
        from common.answer.request import Request

        defaults = Request(question="", prompt="", temperature=0.25, method="fetch-kv", documents=9)
        assert dragon("ask", "q", "--url", serve(defaults=defaults).url).returncode == 0
        request = engine.generation().request
        assert (request.temperature, request.method, request.documents) == (0.25, "fetch-kv", 9)

    def test_json_is_one_object(self, dragon: Dragon, server: HttpServer) -> None:
        done = dragon("ask", "one two", "--json", "--url", server.url)
        value = json.loads(done.stdout)
        assert done.stdout.count("\n") == 1
        assert (value["answer"], value["finish_reason"], done.stderr) == ("one two", "stop", "")
        assert value["usage"]["completion_tokens"] == 2
        assert value["dragon"]["pieces"] == ["one", " two"]

    def test_an_answer_that_was_cut_says_so(self, dragon: Dragon, server: HttpServer, engine: TableEngine) -> None:
        engine.answers = {"Count.": ["one ", "two ", "three"]}
        done = dragon("ask", "--url", server.url, "--max-tokens", "2", "Count.")
        assert (done.returncode, done.stdout) == (0, "one two \n")
        assert done.stderr.startswith("cut after 2 tokens: --max-tokens N allows more\n")
        assert "cut after" not in dragon("ask", "--url", server.url, "Count.").stderr

    def test_report_says_who_said_what(self, dragon: Dragon, server: HttpServer) -> None:
        done = dragon("ask", "one two", "--report", "--url", server.url)
        assert done.stdout == "one two\n"
        assert 'attribution  75 %  Diary (device): "one"\n' in done.stderr
        assert '75 %  Atlas (cloud): " two"\n' in done.stderr

    def test_tokens_appear_as_they_come(self, dragon: Dragon, server: HttpServer, engine: TableEngine) -> None:
        engine.allowed = 1
        with dragon.start("ask", "one two", "--url", server.url) as process:
            assert process.stdout is not None
            assert process.stdout.read(3) == "one"  # while the engine waits to be allowed the second token
            engine.generation().allow(1)
            assert process.stdout.read() == " two\n"

    def test_as_a_process(self, dragon: Dragon, server: HttpServer) -> None:
        with dragon.start("ask", "one two three", "--url", server.url) as process:
            assert process.communicate(timeout=WAIT) == ("one two three\n", AFTER)
            assert process.returncode == 0


class TestFailures:
    @pytest.mark.parametrize(
        ("question", "exit_code", "line"),
        [
            ("  ", 2, "dragon: the question is empty\n"),
            ("refuse", 2, "dragon: The placement 'cloud' needs privacy 'balanced'.\n"),
            ("unready", 1, "dragon: The engine failed while answering; the daemon's log says where.\n"),
        ],
    )
    def test_one_line_and_an_exit_code(
        self, dragon: Dragon, server: HttpServer, question: str, exit_code: int, line: str
    ) -> None:
        done = dragon("ask", question, "--url", server.url)
        assert (done.returncode, done.stdout, done.stderr) == (exit_code, "", line)

    def test_failure_in_the_middle(self, dragon: Dragon, server: HttpServer) -> None:
        done = dragon("ask", "crash now", "--url", server.url)
        assert (done.returncode, done.stdout) == (1, "crash\n")
        assert done.stderr.startswith("dragon: The engine failed")

    def test_values_that_the_daemon_refuses(self, dragon: Dragon, server: HttpServer) -> None:
        done = dragon("ask", "q", "--temperature", "9", "--url", server.url)
        assert (done.returncode, done.stderr.count("\n")) == (2, 1)
        assert "temperature" in done.stderr

    @pytest.mark.parametrize(
        "arguments",
        [
            ["ask"],
            ["ask", "q", "--seed", "x"],
            ["ask", "q", "--sources", "moon"],
            ["aks"],
            ["ask", "q", "--no"],
            ["keys"],
        ],
    )
    def test_usage(self, dragon: Dragon, arguments: list[str]) -> None:
        done = dragon(*arguments)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
        assert done.stderr.startswith("dragon: ")

    @pytest.mark.parametrize("command", [["ask", "q"], ["chat"], ["status"]])
    def test_no_daemon(self, dragon: Dragon, command: list[str]) -> None:
        url = f"http://127.0.0.1:{closed_port()}"
        done = dragon(*command, "--url", url)
        line = f"dragon: no device daemon answers at {url}; start one with `dragon up`\n"
        assert (done.returncode, done.stdout, done.stderr) == (3, "", line)

    @pytest.mark.parametrize("url", ["ftp://localhost", "http://[::1", "http://x:y"])
    def test_an_address_that_is_none(self, dragon: Dragon, url: str) -> None:
        done = dragon("ask", "q", "--url", url)
        assert (done.returncode, done.stderr.count("\n")) == (2, 1)

    @pytest.mark.parametrize("command", ["ask", "trace"])
    def test_the_question_is_the_first_request(self, dragon: Dragon, command: str) -> None:
        lines = list[bytes]()
        with socket.create_server(("127.0.0.1", 0)) as listener:

            def refuse() -> None:
                connection, _ = listener.accept()
                with connection, connection.makefile("rwb") as file:
                    lines.append(file.readline())
                    file.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
                    file.flush()
                    connection.shutdown(socket.SHUT_WR)
                    file.read()  # what a connection is closed on before it is read can cost the client the reply

            peer = threading.Thread(target=refuse)
            peer.start()
            done = dragon(command, "q", "--url", f"http://127.0.0.1:{listener.getsockname()[1]}")
            peer.join(WAIT)
        assert lines == [b"POST /v1/chat/completions HTTP/1.1\r\n"]
        assert (done.returncode, "HTTP status 400" in done.stderr) == (1, True)

    @pytest.mark.parametrize("command", [["ask", "q"], ["chat"], ["status"]], ids=lambda command: command[0])
    def test_a_clouds_port_is_told(self, dragon: Dragon, command: list[str]) -> None:
        with zmq.Context() as context, context.socket(zmq.ROUTER) as cloud:
            cloud.curve_secretkey = zmq.curve_keypair()[1]
            cloud.curve_server = True
            port = cloud.bind_to_random_port("tcp://127.0.0.1")
            for url in (f"http://127.0.0.1:{port}", f"127.0.0.1:{port}", f"tcp://127.0.0.1:{port}"):
                done = dragon(*command, "--url", url, DRAGON_DEVICE_PORT="8765")
                assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
                assert f"127.0.0.1:{port} is a cloud's port" in done.stderr
                assert "by its settings at http://127.0.0.1:8765" in done.stderr

    def test_api_key(self, dragon: Dragon, serve: Serve) -> None:
        url = serve(api_key="right").url
        assert dragon("ask", "q", "--url", url, DRAGON_API_KEY="right").returncode == 0
        refused = dragon("ask", "q", "--url", url)
        assert (refused.returncode, "API key" in refused.stderr) == (2, True)

    def test_proxies_of_the_environment_never_see_a_question(self, dragon: Dragon, server: HttpServer) -> None:
        proxy = f"http://127.0.0.1:{closed_port()}"
        done = dragon("ask", "q", "--url", server.url, HTTP_PROXY=proxy, http_proxy=proxy, ALL_PROXY=proxy)
        assert done.returncode == 0

    def test_ctrl_c_cancels_the_answer(self, dragon: Dragon, server: HttpServer, engine: TableEngine) -> None:
        engine.allowed = 1
        with dragon.start("ask", "one two", "--url", server.url) as process:
            assert process.stdout is not None
            assert process.stdout.read(3) == "one"
            process.send_signal(signal.SIGINT)
            assert process.wait(WAIT) == 130
            assert process.stderr is not None
            assert process.stderr.read() == ""
        assert engine.generation().cancelled.wait(WAIT)

    def test_a_daemon_that_dies_in_the_middle(self, dragon: Dragon, serve: Serve, engine: TableEngine) -> None:
        server = serve()
        engine.allowed = 1
        with dragon.start("ask", "one two", "--url", server.url) as process:
            assert process.stdout is not None
            assert process.stdout.read(3) == "one"
            server.stop()
            assert process.wait(WAIT) == 1
            assert process.stderr is not None
            assert process.stderr.read() == "dragon: The device daemon is stopping.\n"

    def test_a_reader_that_leaves_ends_the_answer(
        self, dragon: Dragon, server: HttpServer, engine: TableEngine
    ) -> None:
        engine.allowed = 1
        with dragon.start("ask", "one two three", "--url", server.url) as process:
            assert process.stdout is not None
            assert process.stdout.read(3) == "one"
            process.stdout.close()
            engine.generation().allow(1)
            assert process.wait(WAIT) == 1
            assert process.stderr is not None
            assert process.stderr.read() == ""
        assert engine.generation().cancelled.wait(WAIT)


class TestChat:
    def test_history_sources_and_quit(self, dragon: Dragon, server: HttpServer, engine: TableEngine) -> None:
        engine.answers = {"Who?": ["Ada."], "When?": ["1843."]}
        done = dragon("chat", "--url", server.url, given="Who?\n\nWhen?\n/sources\n/what\n/quit\nnever\n")
        assert (done.returncode, done.stdout) == (0, "Ada.\n1843.\n")
        assert engine.generation().request.prompt == "\nQuestion: Who?\nAnswer: Ada.\nQuestion: When?\nAnswer:"
        assert 'attribution  75 %  Diary (device): "1843."' in done.stderr
        assert done.stderr.endswith("commands: /sources (of the last answer), /new (conversation), /quit\n")
        assert len(engine.generations) == 2

    def test_a_failed_answer_does_not_end_the_conversation(
        self, dragon: Dragon, server: HttpServer, engine: TableEngine
    ) -> None:
        done = dragon("chat", "--url", server.url, given="/sources\nunready\nhello\n")
        assert (done.returncode, done.stdout) == (0, "hello\n")
        assert done.stderr.startswith("there is no answer yet\ndragon: The engine failed")
        assert engine.generation().request.prompt == "\nQuestion: hello\nAnswer:"

    def test_the_oldest_turns_are_left_out_of_a_long_conversation(
        self, dragon: Dragon, server: HttpServer, engine: TableEngine
    ) -> None:
        """Only when that is asked for, and as many as need be."""
        engine.most_prompt = len("\nQuestion: first\nAnswer: first\nQuestion: three\nAnswer:")
        asked = ["first", "second", "/shorten", "/shorten", "/new", "third", "second", "/new"]
        done = dragon("chat", "--url", server.url, given="\n".join(asked))
        prompts = [each.request.prompt for each in engine.generations]
        assert prompts == [f"\nQuestion: {name}\nAnswer:" for name in ("first", "second", "third", "second")]
        assert done.stderr.count("/shorten leaves out") == 2
        assert done.stderr.count("commands: ") == 1, "there was nothing to shorten"
        assert done.stderr.count("a new conversation") == 1
        assert [line for line in done.stderr.splitlines() if line.startswith("left out")] == ["left out: first"]

    def test_ctrl_c_cancels_one_answer(self, dragon: Dragon, server: HttpServer, engine: TableEngine) -> None:
        engine.allowed = 1
        with dragon.start("chat", "--url", server.url) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write("one two\n")
            process.stdin.flush()
            assert process.stdout.read(3) == "one"
            process.send_signal(signal.SIGINT)
            assert engine.generation().cancelled.wait(WAIT)
            engine.allowed = None
            process.stdin.write("three four\n")
            process.stdin.close()
            assert process.stdout.read() == "\nthree four\n"
            assert process.wait(WAIT) == 0
        assert engine.generation().request.prompt == "\nQuestion: three four\nAnswer:"

    def test_a_daemon_that_starts_anew_does_not_end_the_conversation(self, dragon: Dragon, engine: TableEngine) -> None:
        options = HttpOptions(port=closed_port())
        with ExitStack() as stack:
            first = HttpServer(options).serve(engine)
            stack.callback(first.stop)
            first.start()
            process = stack.enter_context(dragon.start("chat", "--url", first.url))

            def ask(question: str, last: str) -> None:
                """Wait until a line that has `last` stands below it."""
                assert process.stdin is not None
                assert process.stderr is not None
                process.stdin.write(f"{question}\n")
                process.stdin.flush()
                assert any(last in line for line in process.stderr)

            ask("one two", "2 tokens, ")
            first.stop()
            ask("three", "no device daemon answers")
            stack.enter_context(HttpServer(options).serve(engine))
            ask("four", "1 token, ")
        assert engine.generation().request.prompt == "\nQuestion: one two\nAnswer: one two\nQuestion: four\nAnswer:"


class TestOthers:
    def test_status(self, dragon: Dragon, server: HttpServer) -> None:
        table = dragon("status", "--url", server.url)
        assert "cloud       connected (tcp://cloud.example:8601)\n" in table.stdout
        value: dict[str, Any] = json.loads(dragon("status", "--json", "--url", server.url).stdout)
        assert value["cloud"]["state"] == "connected"

    @pytest.mark.parametrize("command", ["ask", "chat", "trace"])
    def test_help_of_asking_has_the_everyday_options_first(self, dragon: Dragon, command: str) -> None:
        everyday, _, research = dragon(command, "--help").stdout.partition("For research:")
        for option in ("--sources", "--privacy", "--max-tokens", "--url"):
            assert f"  {option} " in everyday
        for option in ("--sampler", "--eta", "--draft-temperature <float>"):
            assert f"  {option} " in research
        assert "typing." not in everyday + research

    def test_version_and_help(self, dragon: Dragon) -> None:
        assert dragon("--version").stdout.startswith("dragon ")
        assert dragon("-V") == dragon("--version")
        done = dragon("--help")
        assert done.returncode == 0
        assert dragon("-h") == done
        assert dragon("library", "add", "-h").stdout == dragon("library", "add", "--help").stdout != ""
        assert dragon("device", "-h").stdout == dragon("device", "--help").stdout != ""
        names = "ask chat trace status config profile device cloud library models keys api-keys"
        for command in f"{names} init pair up doctor help".split():
            assert f"\n  {command} " in done.stdout
        assert "..." not in done.stdout.partition("Commands:")[2]
        assert dragon().returncode == 2

    @pytest.mark.parametrize("command", [[], ["ask"], ["library", "add"], ["library"], ["device"]])
    def test_help_of_a_command(self, dragon: Dragon, command: list[str]) -> None:
        assert dragon("help", *command) == dragon(*command, "--help")

    @pytest.mark.parametrize(
        ("typed", "meant"), [(["stats"], "status"), (["help", "stats"], "status"), (["library", "ad"], "add")]
    )
    def test_a_mistyped_command(self, dragon: Dragon, typed: list[str], meant: str) -> None:
        done = dragon(*typed)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
        assert f"Did you mean '{meant}'?" in done.stderr

    def test_client_commands_never_import_the_model_stack(self) -> None:
        code = (
            "import sys\n"
            "from device.cli.main import run_command\n"
            "run_command(['ask', 'q', '--url', 'http://127.0.0.1:1'])\n"
            "run_command(['--help'])\n"
            "heavy = {'torch', 'transformers', 'faiss', 'zmq', 'starlette', 'uvicorn'}\n"
            "print(sorted(heavy & set(sys.modules)))"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=WAIT, cwd=ROOT)
        assert done.stdout.endswith("\n[]\n")
