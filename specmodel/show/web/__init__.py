"""Serve the page of ``specmodel explore``: answers of other commands, in a browser."""
