"""When a worker that ended is replaced: immediately, unless it keeps dying soon after its start."""

SOON_S = 10.0
_FIRST_DELAY_S = 1.0
_MAX_DELAY_S = 30.0


class RestartPolicy:
    """A worker that had answered requests, or had run for some time, is replaced immediately, because the cause may not
    recur. If it dies within SOON_S of its start without having answered, the cause probably recurs, so the delay
    doubles with each attempt."""

    def __init__(self) -> None:
        self._early_deaths: dict[int, int] = {}

    def delay_s(self, worker: int, lived_s: float, has_answered: bool) -> float:
        """Seconds to wait before worker number `worker` is started again."""
        if has_answered or lived_s >= SOON_S:
            self._early_deaths.pop(worker, None)
            return 0.0
        deaths = self._early_deaths[worker] = self._early_deaths.get(worker, 0) + 1
        return min(_MAX_DELAY_S, _FIRST_DELAY_S * 2.0 ** (deaths - 1))
