"""The release of this package: `pyproject.toml`, the `server` header and `dragon --version` take it from here."""

VERSION = "0.1.0"
