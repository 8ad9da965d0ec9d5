"""The release of this package, in the `server` header and in `dragon version`."""

VERSION = "0.1.0"
