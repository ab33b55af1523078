"""The papers as pure functions of numbers: speculation, acceptance, experts, the roofline."""
