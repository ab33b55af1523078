"""What a pass takes: its work, its seconds, and the memory it needs."""
