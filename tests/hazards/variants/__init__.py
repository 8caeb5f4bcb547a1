"""The broken variants, by what they break; see `canaries.py`."""
