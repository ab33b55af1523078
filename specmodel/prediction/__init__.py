"""What speculation gains: operating points evaluated, with intervals, in words."""
