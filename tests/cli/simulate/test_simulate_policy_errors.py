"""`specmodel simulate`: what it says of policies that cannot be used."""

import shlex

from rows import each_row
from simulated import MEASURED, MINE, check_refused, policy_case

OWN = [
    *(
        policy_case(f"{MINE}:{policy}", *told)
        for policy, *told in (
            ("Returns:what=8", "--policy Returns: got 8", "a whole draft length from 0 to 7"),
            ("Returns:what=null", "--policy Returns: none given", "a whole draft length"),
            ("Returns:what=object", "--policy Returns: got 'object'", "a whole draft length"),
            ("Raises:where=init", r"ValueError: two\nlines", "expected one that can be created"),
            ("Raises:where=propose:what=exit", "SystemExit: 3", f"whole trace ({MINE}.py:"),
            ("Raises:where=observe", "replays the whole trace", f"({MINE}.py:"),
            ("Bare", f"--policy {MINE}:Bare: got 'a Bare'", "propose() and observe("),
            ("NoMethods", "a NoMethods", "propose() and observe("),
            ("Arguments", "--policy Arguments: got", "TypeError: Arguments.propose()"),
            ("Fixed:no=3", f"--policy {MINE}:Fixed:no=3", "TypeError", "can be created"),
            ("Fixed:length=1:length=2", "--policy:", "expected length once"),
            ("constant", "--policy:", "a class or function"),
        )
    ),
    policy_case(f"{MINE}.sub:Fixed", "--policy:", "is not a package"),
    policy_case("test_simulate_broken:A", "--policy:", "has A (RuntimeError: at import)"),
    policy_case("test_simulate_syntax:A", "--policy:", "SyntaxError", "line 1"),
    policy_case("os:abort", "--policy: got 'os:abort'", "a class or func"),
]

SETTING = [
    policy_case("casade:tolerance=0.1", "--policy:", "a known name such as cascade"),
    policy_case(f"cascade:max_trials={'[' * 90_000}", "--policy: got", "JSON that is not so deep"),
    *(
        policy_case(f"cascade:{name}={value}", f"--policy cascade.{name}: got {given}", expected)
        for name, value, given, expected in (
            ("max_draft_length", "30", "30", "at most 7, the longest"),
            ("first_draft_length", "9", "9", "at most max_draft_length = 7"),
            ("early_exit", "yes", "'yes'", "a valid boolean"),
        )
    ),
    policy_case("goodput:window=x", "--policy goodput window: got 'x'", "expec"),
    policy_case("sglang:config=bare.json", "--policy sglang config 1: got [2, 4]", "dictionary"),
    *(
        policy_case(policy, f"--policy: got '{policy}'", expected)
        for policy, expected in (
            ("nope", "module:Class, or a known name"),
            ("best_fixed", "best-fixed"),
            ("cascade:max_trial=3", "a setting of this policy: max_trials"),
            ("cascade:max_trials=3:max_trials=4", "max_trials once"),
            ("adaptive-verification", "single requests: this one needs a batch"),
            *((f"fixed{rest}", "such as fixed:3") for rest in ("", ":x", ":-1", ":1.5")),
            ("table:malformed.json", "a JSON file"),
        )
    ),
    policy_case("table:list.json", "--policy table: got []"),
    policy_case("table:1-8=3:8-16=2", "--policy table: got [8, 16, 2]"),
    *(
        (f"{MEASURED} --policy {shlex.quote(text)}", f"--policy: got '{culprit}'")
        for text, culprit in (
            ("none,", ""),
            ("none, none", "none"),
            ("fixed:1,fixed:01", "fixed:1"),
        )
    ),
]


@each_row(("command", "fragments"), [(command, told) for command, *told in [*OWN, *SETTING]])
def test_one_line_names_the_policy_before_any_work(command, fragments, folder, capsys, monkeypatch):
    check_refused(command, fragments, folder, capsys, monkeypatch)
