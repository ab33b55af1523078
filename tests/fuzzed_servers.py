"""Random sessions with servers that are hostile, broken or in trouble, and what must hold."""

import json
import logging
import random
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import standin_server
from fuzzed_files import DEEP, FAULTS, Kept, contents, damaged, quick_server, restore
from fuzzed_runs import faults, faults_of_files, run
from standin_server import StandIn, standing_in

KEY = "sesame-open-7"
"""What no server may have told again."""
LOAD = "--output-length 8 --repeats 1 --requests 1 --wait 0 --timeout 4"
IN_VAIN = re.compile(r"error: (url|answer): ")
"""What is said where a server does not answer as it should."""
_USAGES = (
    '{"prompt_tokens":1e400,"completion_tokens":MADE}',
    '{"prompt_tokens":8,"completion_tokens":1e400}',
    '{"prompt_tokens":-8,"completion_tokens":MADE}',
    '{"prompt_tokens":8,"completion_tokens":true}',
    '{"prompt_tokens":true,"completion_tokens":MADE}',
    '{"prompt_tokens":NaN,"completion_tokens":MADE}',
    f'{{"prompt_tokens":{"9" * 400},"completion_tokens":MADE}}',
    '{"prompt_tokens":8.5,"completion_tokens":MADE}',
    '{"completion_tokens":MADE}',
    "null", "[]", '"x"', "{}", "1e400", DEEP.decode(), "",
)  # fmt: skip
_VALUES = ("NaN", "+Inf", "-1", "1e400", "1e308", "0.5", "x", "", "1e16")
_TEXTS = (
    "", "{}", "[]", "null", "x", "\0", "é\n", '{"data": []}', '{"data": [{"id": 3}]}',
    '{"data": [{"id": "m"}, {"id": "m"}]}', '{"data": [{"id": "\\u001b[31m\\n"}]}',
    '{"data": [{"id": "m", "max_model_len": 1e400}]}', '{"data": {"id": "m"}}',
    '{"version": 1e400}', '{"version": "n/a"}', '{"speculative_algorithm": "EAGLE3"}',
    '{"speculative_algorithm": "EAGLE3", "speculative_num_steps": 1e400, '
    '"speculative_num_draft_tokens": true}',
    '{"speculative_algorithm": 1, "speculative_num_draft_tokens": -3, "internal_states": 5}',
    '{"speculative_algorithm": "X", "speculative_num_draft_tokens": 99999999999999999999}',
    DEEP.decode(), '{"data": ' + DEEP.decode(), '{"version": ' + DEEP.decode(),
)  # fmt: skip
_LARGE = ("x" * 18_000_000, "# HELP x y\n" * 1_700_000)
_PATHS = ("/v1/models", "/version", "/server_info", "/metrics", "/v1/completions")

Draw = Callable[[random.Random, dict[str, Any]], None]


def _usage(rng: random.Random, server: dict[str, Any]) -> None:
    server["usage"] = rng.choice(_USAGES)


def _texts(rng: random.Random, server: dict[str, Any]) -> None:
    server["says"][rng.choice(_PATHS)] = rng.choice(_TEXTS)


def _large(rng: random.Random, server: dict[str, Any]) -> None:
    server["says"][rng.choice([path for path in _PATHS if path != "/version"])] = rng.choice(_LARGE)


def _no_number(rng: random.Random, server: dict[str, Any]) -> None:
    """One counter that is never a number."""
    _counters(rng, server, (2,), ("NaN", "+Inf"))


def _counters(
    rng: random.Random,
    server: dict[str, Any],
    kinds: Sequence[int] = range(5),
    values: Sequence[str] = _VALUES,
) -> None:
    """A page of counters that is damaged, stands still, vanishes, or begins anew."""
    kind, after, visits = rng.choice(kinds), rng.randint(1, 4), iter(range(10**6))
    value, gone = rng.choice(values), rng.choice(["", "up 1\n", "vllm:num_requests_running 0\n"])
    place, own = rng.random(), random.Random(rng.random())
    pages = StandIn(engine=server["engine"], draft_length=server["draft_length"])
    names = (*standin_server.COUNTED, *(f"position {i}" for i in range(8)))

    def page(_: Mapping[str, str]) -> tuple[int, str, str]:
        number = next(visits)
        is_begun_again = kind == 3 and number >= after
        counted = 5 + (1000 if kind else 0) * (number - after * is_begun_again)
        pages.counts = dict.fromkeys(names, counted) | {"running": 0}
        if is_begun_again:
            pages.started = 5.0
        text = standin_server.metrics(pages)
        if kind == 1 and number >= after:
            return 200, "", gone
        if kind == 2:
            lines = text.splitlines()
            counted_at = [at for at, line in enumerate(lines) if not line.startswith("#")]
            at = counted_at[int(place * len(counted_at))]
            lines[at] = f"{lines[at].rpartition(' ')[0]} {value}"
            text = "\n".join([*lines, ""])
        if kind == 4:
            text = damaged(text.encode(), own).decode(errors="replace")
        return 200, "", text

    server["says"]["/metrics"] = page


def _echo(rng: random.Random, server: dict[str, Any]) -> None:
    """Say the key again."""
    status, path = rng.choice([200, 400, 500]), rng.choice(_PATHS)
    form = rng.choice(["%s", '{"error": "%s"}', 'data: {"error": "%s"}\n\n', "x %s 1\n"])

    def said(headers: Mapping[str, str]) -> tuple[int, str, str]:
        return status, "", form % headers.get("authorization", "")

    server["says"][path] = said


def _locked(rng: random.Random, server: dict[str, Any]) -> None:
    """Want a key, which may be given or not, or be refused."""
    server["key"] = rng.choice([KEY, "another"])


def _redirects(rng: random.Random, server: dict[str, Any]) -> None:
    path, other = rng.sample(_PATHS, 2)
    to = rng.choice([path, other, "http://localhost:1/", "x" * 9000, "\x7f", "ftp://localhost/"])
    status = rng.choice([301, 302, 307, 308])
    server["says"][path] = lambda _: (status, f"location: {to}\r\n", "")
    if to == other:
        server["says"][other] = lambda _: (status, f"location: {path}\r\n", "")


def _trouble(rng: random.Random, server: dict[str, Any]) -> None:
    """What honest servers do on bad days."""
    server |= rng.choice([
        {"cut_after": rng.randint(1, 6)}, {"dies_after": rng.randint(0, 6)},
        {"heeds_ignore_eos": False}, {"has_models": False}, {"has_metrics": False},
        {"forms": ("text",)}, {"forms": ("chat",)}, {"forms": ()},
        {"vocabulary": rng.choice([1, 90, 4096])}, {"vocabulary": 50, "tells_vocabulary": False},
        {"model": rng.choice(["", "a\nb", "é,\"x", "=1"])},
    ])  # fmt: skip


SERVERS: dict[str, Draw] = {
    "usage": _usage,
    "texts": _texts,
    "large": _large,
    "counters": _counters,
    "no number": _no_number,
    "echo": _echo,
    "locked": _locked,
    "redirects": _redirects,
    "trouble": _trouble,
}
"""What a server may do."""
_OPTIONS = (
    "", "", "", "--no-stream", "--prompt-form chat", "--stream-interval 4", "--seed 3",
    "--temperature 0", "--model stand-in", "--token-ids 100:200", "--most-tokens 40",
    "--most-minutes 0.01", "--method ngram", "--ca-file nope.pem",
)  # fmt: skip


def session(rng: random.Random, folder: Path, kept: Kept, kinds: tuple[str, ...] = ()) -> str:
    """Measure a server that is not as it should be; return what is wrong with how that ends."""
    settings: dict[str, Any] = {"step_time": 0.002, "says": {}, "engine": "vllm"}
    settings["draft_length"] = rng.choice([0, 2])
    settings["accepted"] = rng.choice([(0,), (1, 2), (2,)])
    output = rng.choice(["measured.csv", "out.csv"])
    if output == "out.csv":
        settings["engine"] = rng.choice(["vllm", "sglang"])
    chosen = kinds or tuple(rng.sample([*SERVERS], rng.choice([1, 1, 2])))
    for kind in chosen:
        SERVERS[kind](rng, settings)
    damage = ""
    if output == "measured.csv" and rng.random() < 0.7:
        name = rng.choice([name for name in kept if name.startswith("measured")])
        damage = rng.choice(["cell", "cell", "value", "deep", "bytes", "circle", "gone"])
        FAULTS[damage](folder / name, rng)
        damage += f" of {name}"
    if rng.random() < 0.1:
        (folder / f".{Path(output).stem}.rows.csv.lock").touch()  # of a run that was killed
    before = contents(folder)
    with standing_in(**settings) as server, quick_server(), pytest.MonkeyPatch.context() as patch:
        patch.delenv("OPENAI_API_KEY", raising=False)
        if rng.random() < 0.6:
            patch.setenv("OPENAI_API_KEY", KEY)
        port = str(server.port)
        lines = [f"measure-engine {server.url} --output {output} {LOAD} {rng.choice(_OPTIONS)}"]
        lines[0] += f" --concurrency {rng.choice(['1', '1,2'])}"
        drafted = rng.choice([settings["draft_length"]] * 5 + [2, "0,2"])
        lines[0] += f" --draft-length {drafted} "
        lines[0] += rng.choice(["--prompt-length 8"] * 5 + ["--prompts prompts.txt"])
        lines.append(f"acceptance {server.url}")
        lines.append(f"fit engine {output} --target olmoe-1b-7b --drafter eagle3 --force "
                     "--hardware h200_sxm --output out.toml")  # fmt: skip
        if "/metrics" in settings["says"] or settings.get("has_metrics", True):
            (folder / "page.prom").write_text(_page(server), encoding="utf-8", errors="replace")
            before["page.prom"] = (folder / "page.prom").read_bytes()
            lines.append("acceptance page.prom")
        how = {"is_large": chosen == ("large",)}
        found = [fault for line in lines for fault in _told(line, folder, before, **how)]
    told = f"{chosen} {damage} {_shown(settings)}".replace(port, "PORT")
    return "\n".join([*found, *lines, told]) if found else ""


def _told(line: str, folder: Path, before: Kept, *, is_large: bool) -> Iterator[str]:
    """Run a line of a session; say what is wrong."""
    ended = run(shlex.split(line))
    yield from faults(ended)
    if line.startswith("measure-engine"):
        yield from faults_of_files(ended, folder, before)
    if is_large and IN_VAIN.search(ended.err) and " MB" not in ended.err:
        yield f"a page without an end is read: {ended.err}"
    told = ended.out + ended.err + "".join(map(repr, contents(folder).values()))
    if KEY in told:
        yield f"the key is told: {told[max(0, told.index(KEY) - 200) :][:300]}"


def _page(server: StandIn) -> str:
    said = server.says.get("/metrics")
    if said is None:
        return standin_server.metrics(server)
    return str(said({"authorization": ""})[2] if callable(said) else said)


def _shown(settings: Mapping[str, Any]) -> str:
    return json.dumps({name: repr(value)[:300] for name, value in settings.items()})


def fuzz(seed: int, count: int, folder: Path, kinds: tuple[str, ...] = ()) -> list[str]:
    """Hold sessions in the current folder; return those that end as none should, and how."""
    rng = random.Random(seed)
    logging.getLogger("asyncio").setLevel(logging.ERROR)  # the servers' own words, at their ends
    (folder / "prompts.txt").write_text("Tell me of rain.\nWhat is a prime?\n")
    with standing_in() as server, quick_server():
        first = f"measure-engine {server.url} --output measured.csv {LOAD} --concurrency 1"
        first += " --prompt-length 8"
        assert run(first.split()).status == 0
    kept, found = contents(folder), []
    for _ in range(count):
        found.append(session(rng, folder, kept, kinds))
        restore(folder, kept)
    return [told for told in found if told]
