"""``specmodel measure-engine``: a running server timed, for ``fit engine``."""

from __future__ import annotations

import asyncio
import hashlib
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import click

from specmodel import __version__
from specmodel.base.errors import InputError
from specmodel.base.ranges import parse_values
from specmodel.base.text import wrap
from specmodel.cli.served_text import served_text
from specmodel.cli.settings import Seconds, command, own
from specmodel.measure import live

_FIRST_LINE, _LINES = 10.0, 60.0
"""Time to the first line about the time left, and between two lines [s]."""
_POLL = 2.0
"""Time between two looks at a server that is being restarted [s]."""
_PROBE_TOKENS = 16
"""Output of the request whose pace tells how long all will take [token]."""
_LISTS = {
    "draft_length": "draft_lengths",
    "concurrency": "concurrencies",
    "prompt_length": "prompt_lengths",
    "output_length": "output_lengths",
}
"""Options with a list, and what the plan calls them."""
_METHOD = (
    "How the server drafts, for the options it is started with: eagle, eagle3, mtp, draft_model,"
    " dflash or ngram."
)
_CLOSING = "Whether draft length 0 comes again at the end: tells whether the machine drifted."
_INTERVAL = "Tokens of an event, where the server can be told: less work for both."
_FORM = "What prompts are.  [default: the first that the server takes]"
_KEY = "OPENAI_API_KEY"
_IDS = "Bounds of random ids.  [default: 100:20000, or less as the served model has]"
_PROMPTS = (
    "Your own, instead of random ones: JSON lines (.jsonl) of objects with a prompt, which is text"
    " or a list of token ids; in any other file, each line is a prompt in text."
)
_RANDOM = (
    "Warning: tokens a step are those of random prompts, which are not accepted as traffic is: one"
    " head had 3.93 and 1.94 on two kinds of prompts. Give your own with --prompts FILE, or tell"
    " predict what your server counts (specmodel acceptance)."
)
_OWN = (
    "Tokens a step are those of the prompts given; answers go on to --output-length, past their own"
    " end where that comes earlier."
)
_FEW = (
    "Warning: {number} prompts for {asked} requests: where one comes again, the server may read its"
    " beginning from a cache, and first tokens are too early."
)
_WORDS = (
    "Warning: the server takes no token ids ({refused}), so that prompts are random words. Those"
    " are accepted otherwise: on one server 1.12 tokens a step, where random ids had 2.39. Do not"
    " compare with runs of ids."
)
_CLOSE = (
    ", for the closing plain round, which tells whether the machine drifted (--no-closing-round:"
    " without)"
)
_SEED = "Of prompts, for draft lengths to meet the same ones; without prefix caching."


@command()
@click.argument("url")
@own("output", "FILE.csv", "Summary to write.", required=True)
@own("model", "NAME", "As served.  [default: the only one]")
@own("draft_length", "VALUES", "Rounds: tokens drafted a step, 0 for none.", default="0")
@click.option("--closing-round/--no-closing-round", default=True, help=_CLOSING)
@own("concurrency", "VALUES", "Requests at once.", default="1,4,16")
@own("prompt_length", "VALUES", "Tokens of a random prompt.  [default: 1024]")
@own("output_length", "VALUES", "Tokens of an answer.", default="256")
@own("repeats", int, "Runs of each load, interleaved.", default=3)
@own("requests", int, "Timed requests of each slot.", default=2)
@own("method", "NAME", _METHOD, default="eagle3")
@own("draft_model", "NAME|PATH", "What drafts, likewise.", default="", show_default=False)
@own("temperature", float, "Of sampling.  [default: the server's]")
@click.option("--stream/--no-stream", default=True, help="Whether answers are streamed.")
@own("stream_interval", click.IntRange(min=1), _INTERVAL)
@own("prompt_form", ["ids", "text", "chat"], _FORM)
@own("token_ids", "LOW:HIGH", _IDS)
@own("prompts", "FILE", _PROMPTS)
@own("seed", click.IntRange(min=0), _SEED)
@own("api_key", "KEY", f"Better in the environment variable {_KEY}.", envvar=_KEY)
@own("ca_file", "FILE", "Certificates to trust, of a server with its own.")
@own("timeout", Seconds(), "For an answer.  [default: 600 s]", default=600.0, show_default=False)
@own("wait", float, "Minutes for a restart.  [default: 60]", default=60.0, show_default=False)
@own("most_tokens", int, "Refuse to ask for more, in and out.")
@own("most_minutes", float, "Stop before a run that would take longer.")
@own("dry_run", bool, "Print the budget and ask nothing of the server.")
def measure_engine(url: str, output: str, **options: Any) -> None:
    """Time a running vLLM, SGLang or server like them, for `fit engine`.

    Each load keeps --concurrency requests in the server, which end one after the other as under
    steady traffic. Every request is appended to FILE.rows.csv as it ends, and a run that was
    interrupted is done again when the command is started again. The server's counters are read
    before and after each run: they tell acceptance, and traffic of others, which is noted.

    Draft lengths are rounds, between which you restart the server: the command prints with what
    options, waits, and sees by its counters what it drafts. Plain decoding, where it is among them,
    comes again at the end, and the drift between the two is told.

    Prompts are random token ids, so that acceptance is theirs, not that of your traffic: --prompts
    gives your own. Needs the extra [engine].

    \b
    Examples:
      specmodel measure-engine http://localhost:8000 --draft-length 0,3 \\
          --method eagle3 --draft-model HEAD --output ./served.csv
      specmodel fit engine ./served.csv --target gpt-oss-120b \\
          --drafter eagle3 --hardware h200_sxm --output mine.toml
    """
    from specmodel.base.files import write_text
    from specmodel.base.units import check

    given = live.read_prompts(options["prompts"]) if options["prompts"] else None
    plan = _plan(options, given)
    for name in ("timeout", "most_minutes"):
        check(name, 1.0 if options[name] is None else options[name], above=0.0, maximum=1e6)
    for name in ("wait", "temperature"):
        check(name, options[name] or 0.0, minimum=0.0, maximum=1e6)
    for engine in ("vllm", "sglang"):
        live.launch_options(engine, 1, options["method"], options["draft_model"])
    work = _Work(url, _rows_of(output), plan, options | {"own": given})
    if options["dry_run"]:
        click.echo(work.dry_text())
        return
    try:
        asyncio.run(work.measured())
    except (KeyboardInterrupt, asyncio.CancelledError):
        click.echo(f"\nInterrupted: {work.kept()}; the same command goes on from there.", err=True)
        raise KeyboardInterrupt from None
    finally:
        name = Path(options["prompts"]).name if given else "random"
        table = live.summary(work.found, name)
        if not table.empty:
            write_text(output, table.to_csv(index=False, float_format="%.6g"))
    if table.empty:
        raise InputError("most_minutes", options["most_minutes"], "minutes for a run at least")
    click.echo(served_text(table, work.plan.draft_lengths))
    if (table["draft_length"] > 0).any():
        click.echo("\n" + wrap(_OWN if given else _RANDOM))
    click.echo(f"\n{work.kept()}.\nWritten: {output}")
    if work.left:
        click.echo(f"{work.num_left} runs are left: the same command goes on with them.")
    where = "--target ... --drafter ... --hardware ... --output ..."
    click.echo(f"To fit: specmodel fit engine {output} \\\n    {where}")


def _plan(options: dict[str, Any], given: Any) -> live.Plan:
    """Return what is asked for, with prompts of their own length where they are given."""
    typed = options["prompt_length"]
    if given and typed:
        raise InputError("prompt_length", typed, "none with --prompts, as long as they are")
    average = live.mean_length(given) if given else 1024
    options = options | {"prompt_length": typed or str(average)}
    lists = {plural: parse_values(name, options[name]) for name, plural in _LISTS.items()}
    lengths = lists["draft_lengths"]
    if options["closing_round"] and 0 in lengths and lengths[-1]:
        lengths.append(0)
    return live.Plan(**lists, repeats=options["repeats"], requests=options["requests"])


def _rows_of(output: str) -> Path:
    """Return the file of single requests beside the summary; refuse what cannot be written."""
    from specmodel.base.files import check_writable

    path = Path(output)
    if path.suffix != ".csv":
        raise InputError("output", output, "a .csv file")
    check_writable(path)
    rows = path.with_suffix(".rows.csv")
    if path.exists() and not rows.exists():
        expected = f"a new file, or one whose rows {rows.name} are beside it; this one is kept"
        raise InputError("output", output, expected)
    return rows


def _bounds(typed: str | None) -> tuple[int, int] | None:
    """Return the bounds of token ids as typed; None where none were."""
    if typed is None:
        return None
    bounds = parse_values("token_ids", typed.replace(":", ","))
    if len(bounds) != 2 or not 0 <= bounds[0] <= bounds[1] < 2**31:
        raise InputError("token_ids", typed, "LOW:HIGH")
    return int(bounds[0]), int(bounds[1])


def _end_on_signals() -> None:
    """Make SIGTERM cancel the work in an orderly way, as Ctrl-C does."""
    task = asyncio.current_task()
    with suppress(NotImplementedError, RuntimeError, ValueError):  # not on every system or thread
        if task is not None:
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)


class _Work:
    """The runs of a plan that are done and left, and the pace so far."""

    def __init__(self, url: str, rows: Path, plan: live.Plan, options: dict[str, Any]) -> None:
        self.url, self.rows, self.plan, self.options = url, rows, plan, options
        self.left = plan.left()
        self.total = self.num_left
        self.known: dict[tuple[int, ...], float] = {}
        self.pace = (0.0, 0.0)
        self.found: list[dict[str, str]] = []
        self.warned: list[str] = []
        self.begun = time.monotonic()
        self._due = self.begun + _FIRST_LINE

    @property
    def num_left(self) -> int:
        """How many runs are left [-]."""
        return sum(map(len, self.left.values()))

    async def measured(self) -> None:
        """Do the runs that are left, round by round."""
        options = self.options
        how = {name: options[name] for name in ("stream_interval", "temperature")}
        how["streams"] = options["stream"]
        access = {name: options[name] for name in ("api_key", "ca_file", "timeout")}
        _end_on_signals()
        async with live.connected(self.url, **access, **how) as server:
            told = await server.told(options["model"])
            longest = max(self.plan.prompt_lengths) + max(self.plan.output_lengths)
            if told.context_length is not None and longest > told.context_length:
                expected = f"at most {told.context_length} with the output, as the server has it"
                raise InputError("prompt_length", longest, expected)
            session = {"specmodel": __version__, "url": server.url, "seed": options["seed"]}
            session["started"] = time.strftime("%Y-%m-%dT%H:%M:%S%z")
            identity = {"model": told.model, "engine": told.engine} | how
            if given := options["own"]:
                digest = hashlib.sha256(repr(given).encode(errors="replace")).hexdigest()
                identity["prompts"] = f"{Path(options['prompts']).name} {digest[:8]}"
            else:
                identity["prompts"] = None
            with live.Log(self.rows, identity, session) as log:
                self.found, self.left = log.rows, self.plan.left(log.done)
                most, asked = options["most_tokens"], live.budget(self.plan, self.left)
                tokens = asked.prompt_tokens + asked.output_tokens
                if most is not None and tokens > most:
                    expected = f"at least {tokens}, what this asks for"
                    raise InputError("most_tokens", most, expected)
                while self.left:
                    number, told = await self._ready(server, told)
                    if not await self._round(server, told, number, log):
                        break
                log.note_session(ended=time.strftime("%Y-%m-%dT%H:%M:%S%z"))

    def kept(self) -> str:
        """Say how many runs are in the file of requests."""
        return f"{self.total - self.num_left} of {self.total} runs are in {self.rows}"

    def dry_text(self) -> str:
        """Return what is left to do, and the server options for each round."""
        if self.rows.exists():
            log = live.Log(self.rows, {}, {})
            log.read()
            self.left = self.plan.left(log.done)
        lines = [self._budget_text()]
        for number in self.left:
            lines.append(f"Draft length {self.plan.draft_lengths[number]}: the server with")
            lines += [f"  {name}: {self._launch(name, number)}" for name in ("vllm", "sglang")]
        return "\n".join(lines)

    def _launch(self, engine: str, number: int) -> str:
        length, options = self.plan.draft_lengths[number], self.options
        return live.launch_options(engine, length, options["method"], options["draft_model"])

    def _budget_text(self) -> str:
        asked = live.budget(self.plan, self.left)
        rounds = f"{len(self.left)} round{'s' if len(self.left) != 1 else ''}"
        return (
            f"{asked.runs} of {self.total} runs left in {rounds}: {asked.requests:,} requests,"
            f" {asked.prompt_tokens:,} tokens in and {asked.output_tokens:,} out"
        )

    async def _ready(self, server: live.Server, told: live.Told) -> tuple[int, live.Told]:
        """Wait until the server has the draft length of a round that is left; return the round."""
        plan, shown, end = self.plan, "", time.monotonic() + 60.0 * self.options["wait"]
        while True:
            length = told.drafts.draft_length
            number = next(iter(self.left))
            for other in self.left:  # one that comes again waits for those before it
                again = length in plan.draft_lengths[:other] and other != number
                if plan.draft_lengths[other] == length and not again:
                    return other, told
            launch = self._launch(told.engine, number)
            now = "one that changes" if length is None else length
            text = f"The server runs with draft length {now}. To go on, restart it with {launch}"
            text += (
                _CLOSE
                if 0 in plan.draft_lengths[:number] and not plan.draft_lengths[number]
                else ""
            )
            if text != shown and self.options["wait"]:
                click.echo(f"{text}\n(waiting; Ctrl-C keeps what is there)", err=True)
                shown = text
            if time.monotonic() > end:
                expected = f"{plan.draft_lengths[number]}: {launch}; {self.kept()}"
                raise InputError("draft_length", now, expected)
            await asyncio.sleep(min(_POLL, 30.0 * self.options["wait"]))
            try:
                told = await server.told(self.options["model"])
            except InputError as error:  # while it is down, it does not answer
                if error.argument != "url":
                    raise

    async def _round(
        self, server: live.Server, told: live.Told, number: int, log: live.Log
    ) -> bool:
        """Do the runs of a round; return whether there is time for more."""
        prompts = await self._prompts(server)
        await self._probe(server, prompts)
        engine = f"{told.engine or 'server'} {told.version}".strip()
        what = f"draft length {self.plan.draft_lengths[number]}, prompts as {server.form}"
        minutes = f"at least {sum(self._needed()) / 60:.1f} min at the pace of one request"
        click.echo(f"{told.model}, {engine}, {what}\n{self._budget_text()};\n{minutes}", err=True)
        most = self.options["most_minutes"]
        async for done in live.drive(server, told, self.plan, self.left[number], log, prompts):
            if done.is_run:
                self._note(done)
            if most is not None and self.left:
                needed = self._needed()[0] + time.monotonic() - self.begun
                if needed > 60.0 * most:
                    return False
        return True

    async def _prompts(self, server: live.Server) -> Any:
        """Return a maker of prompts in the form that the server takes."""
        options, lengths = self.options, self.plan.prompt_lengths
        told = {name: options[name] for name in ("own", "seed")} | {"form": options["prompt_form"]}
        bounds = _bounds(options["token_ids"])
        prompts, refused = await live.found_prompts(server, lengths, token_ids=bounds, **told)
        warnings = [wrap(_WORDS.format(refused=refused))] if refused else []
        asked = live.budget(self.plan, self.left).requests
        if options["own"] and len(options["own"]) < asked:
            warnings.append(wrap(_FEW.format(number=len(options["own"]), asked=asked)))
        for warning in warnings:
            if warning not in self.warned:
                click.echo(warning, err=True)
        self.warned += warnings
        return prompts

    async def _probe(self, server: live.Server, prompts: Any) -> None:
        """Measure the pace of a single request."""
        prompt = prompts(min(self.plan.prompt_lengths))
        answer = await server.complete(prompt, _PROBE_TOKENS)
        if answer.fault:
            raise InputError("answer", "of the first request", f"a whole one: {answer.fault}")
        first = answer.first_token if answer.first_token == answer.first_token else 0.0
        self.pace = (first, (answer.latency - first) / (_PROBE_TOKENS - 1))

    def _needed(self) -> list[float]:
        """Return how long each run that is left will take [s]."""
        runs, known = [run for runs in self.left.values() for run in runs], self.known
        return [live.seconds_of(run, self.plan.requests, *self.pace, known) for run in runs]

    def _note(self, done: live.Done) -> None:
        """Take a finished run off the list, and print from time to time how much is left."""
        number = done.run.round
        self.left[number] = [run for run in self.left[number] if run != done.run]
        self.left = {n: runs for n, runs in self.left.items() if runs}
        self.known[done.run.key[:-1]] = done.seconds
        now = time.monotonic()
        if now >= self._due and self.left:
            minutes = sum(self._needed()) / 60
            runs = f"{self.total - self.num_left} of {self.total} runs"
            click.echo(f"{runs}, {minutes:.1f} min left", err=True)
            self._due = now + (_FIRST_LINE if sys.stderr.isatty() else _LINES)
