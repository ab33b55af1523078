"""Build the site into docs/_build/html; every warning is an error.

Usage: python docs/build.py [--rewrite] [--photographs FOLDER]. --rewrite writes the present output
of the examples into the pages. --photographs takes a picture of each page at two widths, with
Chromium. Unchanged pages are not read again. Remove docs/_build if the library has changed.
"""

import argparse
import contextlib
import io
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

HERE = Path(__file__).resolve().parent
SITE = HERE / "_build" / "html"
NEEDED = {"sphinx": "docs", "myst_parser": "docs", "furo": "docs", "numpydoc": "docs"}
NEEDED |= {
    "matplotlib": "docs",
    "starlette": "docs",
    "numba": "docs",
    "pyarrow": "docs",
    "specmodel": "docs",
}
WIDTHS = (1280, 420)
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rewrite", action="store_true")
    parser.add_argument("--photographs", type=Path, metavar="FOLDER")
    options = parser.parse_args()
    sys.path[:0] = [str(HERE / "parts"), str(HERE.parent)]
    if missing := [name for name in NEEDED if find_spec(name) is None]:
        print(f"docs: no {', '.join(missing)}; pip install -e '.[docs]'", file=sys.stderr)
        return 2
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if options.photographs and not browser:
        print("docs: no browser for --photographs; install chromium", file=sys.stderr)
        return 2
    draw_gallery()
    status = build(options.rewrite)
    if browser and options.photographs and not status:
        photograph(browser, options.photographs)
    return status


def draw_gallery() -> None:
    """Draw the figures of the gallery, unless figures exist."""
    import gallery

    folder = HERE / "gallery"
    if not any(folder.glob("*.png")):
        with contextlib.redirect_stderr(io.StringIO()):  # warnings of commands
            gallery.main(folder)


def build(rewrite: bool) -> int:
    from sphinx.cmd.build import main as sphinx

    if rewrite:
        shutil.rmtree(SITE.parent, ignore_errors=True)
    settings = ["-D", f"rewrite_examples={int(rewrite)}", "-d", str(SITE.parent / "doctrees")]
    return sphinx(["-q", "-W", "--keep-going", *settings, str(HERE), str(SITE)])


def photograph(browser: str, folder: Path) -> None:
    """Take a picture of each page at each width."""
    folder.mkdir(parents=True, exist_ok=True)
    for page in sorted(SITE.rglob("*.html")):
        name = "-".join(page.relative_to(SITE).with_suffix("").parts)
        for width in WIDTHS:
            picture = folder.resolve() / f"{name}-{width}.png"
            size, shot = f"--window-size={width},4000", f"--screenshot={picture}"
            command = [browser, "--headless=new", "--no-sandbox", "--hide-scrollbars", size, shot]
            subprocess.run([*command, page.as_uri()], check=True, capture_output=True)


if __name__ == "__main__":
    sys.exit(main())
