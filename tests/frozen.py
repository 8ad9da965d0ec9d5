"""Imported last by the process that daemons are forked from: what it has by then is never garbage.

Else the collector of each forked process goes through all modules, and copies their memory as it marks them.
"""

from __future__ import annotations

from common.process.machine import keep_loaded

keep_loaded()
