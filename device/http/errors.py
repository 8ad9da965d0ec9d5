"""Refusals in OpenAI's error format."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.responses import JSONResponse

MODEL_ALIAS = "dragon"  # any model that the daemon runs
INVALID_REQUEST = "invalid_request_error"
SERVER_ERROR = "server_error"


class ApiError(Exception):
    """A refusal: an HTTP status and OpenAI's four error fields."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        kind: str = INVALID_REQUEST,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.kind = kind
        self.param = param
        self.code = code
        self.headers = headers

    def body(self) -> dict[str, dict[str, str | None]]:
        return {"error": {"message": self.message, "type": self.kind, "param": self.param, "code": self.code}}

    def response(self) -> JSONResponse:
        return JSONResponse(self.body(), self.status, headers=self.headers)


def busy() -> ApiError:
    """Refuses while all slots are taken, or after too long a wait."""
    return ApiError(
        429,
        "The daemon is busy: no more answers may run or wait. Try again when one is finished.",
        kind="rate_limit_error",
        code="rate_limit_exceeded",
        headers={"retry-after": "1"},
    )


def wrong_key() -> ApiError:
    return ApiError(
        401,
        "Missing or incorrect API key: send it as 'Authorization: Bearer KEY'.",
        code="invalid_api_key",
        headers={"www-authenticate": "Bearer"},
    )


def keys_unreadable() -> ApiError:
    said = "The daemon can't read its API keys and refuses every request; its log says what to do."
    return _unavailable(said, code="api_keys_unreadable")


def unknown(param: str) -> ApiError:
    return ApiError(400, f"Unrecognized request argument supplied: '{param}'.", param=param, code="unknown_parameter")


def too_many_answers(wanted: int, most: int) -> ApiError:
    """Refuses more answers than there are slots, waiting ones included."""
    said = f"The request asks for {wanted} answers; this device takes {most} at a time."
    return ApiError(400, said, param="n", code="invalid_value")


def text_too_long(param: str, size: int, most: int) -> ApiError:
    said = f"The text in '{param}' has {size} bytes, and {most} are read at a time; send it in parts."
    return ApiError(413, said, param=param, code="text_too_long")


def prompt_too_long(param: str, most: int, *, conversation: bool = False) -> ApiError:
    """Refuses a prompt; `conversation` if its question itself may be short."""
    said = f"The question is longer than {most} bytes."
    if conversation:
        said = f"The conversation is longer than {most} bytes: begin a new one."
    return too_long(said, param)


def too_long(sentence: str, param: str) -> ApiError:
    """Clients recognise by the code that they must shorten."""
    return ApiError(400, sentence, param=param, code="context_length_exceeded")


def unknown_model(name: str) -> ApiError:
    """Refuses another model's name; `name` is the served model's own."""
    return ApiError(
        404,
        f"This daemon does not serve that model; it serves '{name}' (also as '{MODEL_ALIAS}'). The setting"
        " model_aliases names others for it.",
        param="model",
        code="model_not_found",
    )


def too_many_connections(open_now: int) -> ApiError:
    said = f"{open_now} connections are open already; try again when one is closed."
    return _unavailable(said, code="too_many_connections")


def stopping() -> ApiError:
    return _unavailable("The device daemon is stopping.", code="stopping")


def starting(doing: str) -> ApiError:
    """Refuses during the start; `doing` is its current step."""
    return _unavailable(f"The device daemon is starting: {doing}.", code="starting", headers={"retry-after": "1"})


def diagnosis_late(seconds: float) -> ApiError:
    said = f"The diagnosis takes longer than {seconds:g} seconds: the network does not answer. Ask again."
    return _unavailable(said, code="diagnosis_late")


def answer_failed(sentence: str) -> ApiError:
    return _unavailable(sentence, code="answer_failed")


def engine_failed() -> ApiError:
    """Hides an exception's text, which may be private."""
    said = "The engine failed while answering; the daemon's log says where."
    return ApiError(500, said, kind=SERVER_ERROR, code="engine")


def reader_too_slow() -> ApiError:
    return _unavailable("The answer was cancelled: the client did not keep up with it.", code="slow_reader")


def server_failed() -> ApiError:
    return ApiError(500, "The server failed; the daemon's log says where.", kind=SERVER_ERROR, code="server")


def sentence_of(error: Exception) -> str:
    text = str(error)
    return f"{text[:1].upper()}{text[1:]}."


def _unavailable(sentence: str, *, code: str, headers: Mapping[str, str] | None = None) -> ApiError:
    return ApiError(503, sentence, kind=SERVER_ERROR, code=code, headers=headers)
