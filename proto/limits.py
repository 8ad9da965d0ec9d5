"""Limits of a request that hold on the wire, in HTTP bodies and on the command line alike."""

from __future__ import annotations

from typing import Final

from proto.bounds import Real

LONGEST_QUESTION: Final = 2**14  # bytes of UTF-8 that libraries are searched for
LONGEST_PROMPT: Final = 2**15  # bytes of UTF-8 of the query part of every row
MOST_CONTROLS: Final = 4096  # control tokens in it
LONGEST_OPTIONS: Final = 4096  # bytes of JSON of the options that only one method has
LONGEST_PROCESSORS: Final = 2**13  # bytes of JSON of what changes an answer's distribution
MOST_BIASES: Final = 300  # tokens that it may name
MOST_DOCUMENTS: Final = 64  # that one side retrieves for an answer
MOST_PATTERNS: Final = 16  # by which documents are chosen
LONGEST_PATTERN: Final = 256  # bytes of UTF-8 of each
MOST_ENTRIES: Final = 4096  # K of the race
MOST_NAMED: Final = 4096  # tokens whose values one `Resolve` asks for
MOST_UNITS: Final = 2**12  # of all distributions of a proposal: an index of flat ones takes long to read
MOST_RESOLUTION: Final = 1024  # units that a quantised distribution is divided into
MOST_LIKELIEST: Final = 256  # tokens that are listed because they are probable
MOST_TOKENS: Final = 8192  # of an answer
MOST_FETCHED: Final = 256  # passages that one answer is handed
LARGEST_PROPOSAL: Final = 2**21  # a proposal's payload is below that, in bytes
MOST_PROPOSED: Final = 64  # drafted tokens of one proposal
MOST_NODES: Final = 256  # drafted tokens of a tree
SEEDS: Final = 2**64  # seeds are below it
DRAWN_SEEDS: Final = 2**53  # the same of those that nobody chose: every reader of JSON keeps such a number

# Noise is raised to the power of the temperature: below the least one, float32 could not tell its law from that of 0.
TEMPERATURE: Final = Real(0.01, 2.0, or_zero=True)
WHOLE_SHARE: Final = 255  # in `Contributions`: all of a token's probability
