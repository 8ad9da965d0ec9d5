"""Settings of every test: one thread, no network for models, hypothesis without a clock.

The environment is set before anything imports torch or transformers, which read it once.
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = "1"
os.environ["MKL_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TRANSFORMERS_OFFLINE"] = "1"
os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
# The default model answers about real texts, at a hundred times the cost.
os.environ["DRAGON_DEVICE_MODEL"] = os.environ["DRAGON_CLOUD_MODEL"] = "embedded"
os.environ["DRAGON_DEVICE_SEARCH"] = os.environ["DRAGON_CLOUD_SEARCH"] = "dense"

from hypothesis import HealthCheck, settings

# How long an example takes says something about the machine, not about the code.
settings.register_profile("local", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("local"), derandomize=True, database=None)
settings.load_profile("ci" if os.environ.get("CI") else "local")
