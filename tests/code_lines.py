"""Count lines and tokens of code by room, without docstrings, comments and blank lines.

Usage: python tests/code_lines.py [FOLDER], by default specmodel.
"""

import ast
import sys
import tokenize
from collections import Counter
from pathlib import Path

_NO_CODE = {
    *(tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT),
    *(tokenize.ENCODING, tokenize.ENDMARKER),
}


def counted(path: Path) -> tuple[int, int]:
    """Return lines and tokens of code in a file."""
    with tokenize.open(path) as file:
        source = file.read()
    told = {
        line
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if isinstance(node.value.value, str)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    lines, tokens = set(), 0
    for token in tokenize.generate_tokens(iter(source.splitlines(keepends=True)).__next__):
        if token.type not in _NO_CODE and token.start[0] not in told:
            lines |= set(range(token.start[0], token.end[0] + 1))
            tokens += 1
    return len(lines), tokens


def main(folder: Path) -> None:
    lines: Counter[str] = Counter()
    tokens: Counter[str] = Counter()
    for path in sorted(folder.rglob("*.py")):
        room = path.relative_to(folder).parts[0]
        of_file = counted(path)
        lines[room] += of_file[0]
        tokens[room] += of_file[1]
    for room, count in lines.most_common():
        print(f"{room:16}{count:8,}{tokens[room]:10,}")
    print(f"{'all':16}{lines.total():8,}{tokens.total():10,}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "specmodel"))
