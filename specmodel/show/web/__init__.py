"""The page of ``specmodel explore``: what other commands answer, in a browser."""
