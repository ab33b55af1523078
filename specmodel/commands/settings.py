"""What all commands share."""

SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 80}
