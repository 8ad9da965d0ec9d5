"""The cloud's documents on the device, which answers by itself (DRCG, §7.1): as text, or with keys and values."""
