"""Property tests draw the same examples every time: a failure is a change in the code, not luck."""

from hypothesis import settings

settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")
