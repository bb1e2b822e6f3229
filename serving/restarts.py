"""When a worker that ended is replaced: at once, unless it dies again and again before it is of any use."""

SOON_S = 10.0
_FIRST_DELAY_S = 1.0
_MAX_DELAY_S = 30.0


class RestartPolicy:
    """A worker that answered, or that lived for some time, died of something that may not happen again. One that dies
    within SOON_S of its start without an answer will do so again, so each further attempt waits twice as long."""

    def __init__(self) -> None:
        self._early_deaths: dict[int, int] = {}

    def delay_s(self, worker: int, lived_s: float, has_answered: bool) -> float:
        """How long to wait before worker `worker` is started again."""
        if has_answered or lived_s >= SOON_S:
            self._early_deaths.pop(worker, None)
            return 0.0
        deaths = self._early_deaths[worker] = self._early_deaths.get(worker, 0) + 1
        return min(_MAX_DELAY_S, _FIRST_DELAY_S * 2.0 ** (deaths - 1))
