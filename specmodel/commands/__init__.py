"""Commands of the program, by what they are about. Nothing heavy is imported before one runs."""
