"""Cascade for one request in plain Python, which the package's arrays must equal step by step."""

from specmodel.replay.policies import CascadeSettings

BASELINE, TEST, SET = "baseline", "test", "set"


class ReadableCascade:
    """A baseline, tests of draft lengths, a set phase."""

    def __init__(self, settings: CascadeSettings | None = None) -> None:
        self.settings = settings or CascadeSettings()
        self.utility = float("nan")  # of the last trial
        self._start = self.settings.first_draft_length
        self._start_utility: float | None = None  # when it was set last
        self._set_length = self.settings.set_iterations
        self._base = float("nan")
        self._since_baseline = 0
        self._enter(BASELINE, 0, self.settings.baseline_iterations)

    def propose(self) -> int:
        """Return the draft length of the next iteration [token]."""
        return self._draft_length

    def observe(self, emitted_tokens: int, step_time: float) -> None:
        """Take in an iteration: what it emitted and how long it took."""
        self._tokens += emitted_tokens
        self._time += step_time
        self._left -= 1
        if self._left:
            return
        self._since_baseline += self._length
        if self.phase == BASELINE:
            self._take_baseline()
            self._start_test()
        elif self.phase == TEST:
            self._end_trial()
        else:
            self._end_set()

    def _enter(self, phase: str, draft_length: int, iterations: int) -> None:
        self.phase = phase
        self._draft_length = draft_length
        self._length = self._left = iterations
        self._tokens, self._time = 0, 0.0

    def _take_baseline(self) -> None:
        self._base = self._time / self._length
        self._since_baseline = 0

    def _start_test(self) -> None:
        first = self._start if self.settings.climb else 1
        self._low = self._high = first
        self._trials = 0
        self._best, self._best_utility = first, float("-inf")
        self._enter(TEST, first, self.settings.trial_iterations)

    def _end_trial(self) -> None:
        """Measure the utility of the draft length tried; try another, or set the best."""
        previous, tried = self.utility, self._draft_length
        self.utility = self._tokens * self._base / self._time
        self._trials += 1
        rose = self.utility > self._best_utility
        if rose:
            self._best, self._best_utility = tried, self.utility
        self._low, self._high = min(self._low, tried), max(self._high, tried)
        following = self._next_trial(previous, rose=rose)
        if following > 0:
            self._enter(TEST, following, self.settings.trial_iterations)
            return
        sees_plain = self.settings.plain_competes or following == 0
        self._set(0 if sees_plain and self._best_utility < 1 else self._best)

    def _next_trial(self, previous: float, *, rose: bool) -> int:
        """Return the next draft length: 0 for no speculation, -1 if the test is over."""
        s, tried = self.settings, self._draft_length
        if not s.climb:
            return tried + 1 if tried < s.max_draft_length else 0
        if tried == 1 and self.utility < 1:
            return 0
        if self._is_over(previous, rose=rose):
            return -1
        self._up = self._goes_up(rose=rose)
        if not self._up:
            return max(self._low - s.climb_step, 1) if self._low > 1 else 0
        following = self._high + s.climb_step
        return following if following <= s.max_draft_length else -1

    def _is_over(self, previous: float, *, rose: bool) -> bool:
        """Return whether the test ends: utilities are similar, or past their maximum."""
        s, trials = self.settings, self._trials
        if trials >= s.max_trials:
            return True
        if not s.early_exit or trials == 1:
            return False
        is_similar = abs(self.utility - previous) <= s.tolerance * previous
        return is_similar or (trials > 2 and not rose)

    def _goes_up(self, *, rose: bool) -> bool:
        """Return whether the next draft is longer: on while utility rises, else back."""
        s, tried = self.settings, self._draft_length
        if self._trials > 1:
            return self._up == rose  # the same direction, or round
        if tried + s.climb_step > s.max_draft_length:
            return False
        by_utility = self.utility >= 1
        wanted = {"up": True, "down": False, "by utility": by_utility}[s.first_direction]
        return wanted or tried == 1

    def _set(self, draft_length: int) -> None:
        """Hold a draft length; each time none is chosen, for longer."""
        if draft_length:
            self._set_length = self.settings.set_iterations
        else:
            self._set_length *= self.settings.backoff_factor
        self._enter(SET, draft_length, self._set_length)

    def _end_set(self) -> None:
        if self._draft_length == 0:
            self._take_baseline()
        else:
            utility, least = self._tokens * self._base / self._time, self._start_utility
            if self._draft_length == self._start or least is None or utility > least:
                self._start, self._start_utility = self._draft_length, utility
        if self._since_baseline >= self.settings.baseline_interval:
            self._enter(BASELINE, 0, self.settings.baseline_iterations)
        else:
            self._start_test()
