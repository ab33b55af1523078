"""Draft-length policies replayed over acceptance traces."""
