"""Endpoints for the routes, the OpenAPI document and the log."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from device.http.embeddings import EmbeddingsBody
from device.http.library import FolderBody
from device.http.responses.schema import ResponsesBody
from device.http.schema import Body, ChatBody, CompletionBody
from device.http.tokens import DetokenizeBody, TokenizeBody


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A path with its method. OpenAI's also work without `/v1`."""

    method: Literal["GET", "POST", "DELETE"]
    path: str
    handler: str  # method of `Api`
    summary: str
    body: type[Body] | None = None
    public: bool = False  # without API key, and for any page
    query: tuple[str, ...] = ()  # in the address
    status: int = 200  # of success
    media: str = "application/json"  # of success

    @property
    def paths(self) -> tuple[str, ...]:
        """The path, with and without `/v1`."""
        if self.path.startswith("/v1/"):
            return (self.path, self.path.removeprefix("/v1"))
        return (self.path, f"/v1{self.path}") if self.path == "/health" else (self.path,)


ENDPOINTS = (
    Endpoint("GET", "/health", "health", "Whether the daemon serves", public=True),
    Endpoint("GET", "/status", "status", "Model, library and the link to the cloud"),
    Endpoint("GET", "/metrics", "metrics", "Figures for operators, in the format of Prometheus", media="text/plain"),
    Endpoint("GET", "/doctor", "doctor", "Diagnosis: what is right, what is wrong, and what to do"),
    Endpoint("GET", "/openapi.json", "openapi", "This document"),
    Endpoint("GET", "/v1/models", "models", "The names of the model"),
    Endpoint("GET", "/v1/models/{model}", "model", "The model by one of its names"),
    Endpoint("POST", "/v1/completions", "completions", "Continue a prompt as it is", CompletionBody),
    Endpoint("POST", "/v1/chat/completions", "chat_completions", "Answer the last user message", ChatBody),
    Endpoint("POST", "/v1/responses", "responses", "Answer the last user message, in typed items", ResponsesBody),
    Endpoint("POST", "/v1/embeddings", "embeddings", "Vectors of texts", EmbeddingsBody),
    Endpoint("GET", "/library", "library", "Documents, watched folders, and how far they were read"),
    Endpoint("GET", "/library/search", "library_search", "Passages most similar to `query`", query=("query", "count")),
    Endpoint("GET", "/library/passages/{chunk}", "library_passage", "A passage, by the number in an answer's source"),
    Endpoint(
        "POST",
        "/library/documents",
        "library_upload",
        "Keep the body as the document `name`, and read it",
        query=("name",),
        status=201,
    ),
    Endpoint("DELETE", "/library/documents/{document}", "library_forget", "Remove a document"),
    Endpoint("DELETE", "/library/documents", "library_discard", "Remove the upload `name`", query=("name",)),
    Endpoint(
        "POST", "/library/folders", "library_watch", "Read a folder, and what changes there", FolderBody, status=202
    ),
    Endpoint("DELETE", "/library/folders", "library_unwatch", "Forget the folder `path`", query=("path",)),
    Endpoint("POST", "/tokenize", "tokenize", "Token ids of a text", TokenizeBody),
    Endpoint("POST", "/detokenize", "detokenize", "The text of token ids", DetokenizeBody),
)
