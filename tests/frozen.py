"""Imported last by the process that others are forked from: what it has is no garbage, and nobody need look at it again.

Without this each forked process's collector goes through all modules, and copies their memory as it marks them.
"""

import gc

gc.collect()
gc.freeze()
