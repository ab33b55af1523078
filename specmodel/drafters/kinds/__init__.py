"""The drafters that a target suffices for: each module lists those that it makes in `ROWS`.

A new one is a row with the function that makes it for a target, in a module here or a new one.
"""
