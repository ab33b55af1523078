"""Settings of property tests, the same for all."""

from hypothesis import settings

settings.register_profile("specmodel", deadline=None, derandomize=True, max_examples=60)
settings.load_profile("specmodel")
