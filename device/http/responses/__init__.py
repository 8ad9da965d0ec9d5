"""`POST /v1/responses`: OpenAI's newer format, for text and calls of tools."""
