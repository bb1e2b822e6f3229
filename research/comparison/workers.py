"""Parallel worker processes with one thread each, which end with the process that started them."""

import multiprocessing
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from typing import Protocol, TypeVar

import torch

Piece = TypeVar("Piece", bound=Callable[[], None])


class Perform(Protocol):
    """Runs all the work it is given, in any order, and reports each finished piece."""

    def __call__(self, work: list[Piece], done: Callable[[Piece], None]) -> None: ...


@contextmanager
def workers(jobs: int) -> Iterator[Perform]:
    """Use `jobs` processes; with one job, the work runs in this process."""
    if jobs == 1:
        yield _here
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=context, initializer=_start) as pool:

        def perform(work: list[Piece], done: Callable[[Piece], None]) -> None:
            futures = {pool.submit(piece): piece for piece in work}
            try:
                for future in as_completed(futures):
                    future.result()
                    done(futures[future])
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise

        yield perform


def _here(work: list[Piece], done: Callable[[Piece], None]) -> None:
    for piece in work:
        piece()
        done(piece)


def _start() -> None:
    torch.set_num_threads(1)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """End the process if its parent is gone: a killed parent can't notify it, and it would wait for work forever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
