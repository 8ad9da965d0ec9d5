"""`POST /v1/responses`: OpenAI's newer format, for text."""
