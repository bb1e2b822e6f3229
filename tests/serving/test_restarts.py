from serving.restarts import RestartPolicy


def test_a_worker_that_was_of_use_is_replaced_at_once() -> None:
    policy = RestartPolicy()
    assert policy.delay_s(0, lived_s=0.5, has_answered=True) == 0
    assert policy.delay_s(0, lived_s=11.0, has_answered=False) == 0


def test_one_that_dies_at_its_start_again_and_again_waits_longer_each_time() -> None:
    policy = RestartPolicy()
    assert [policy.delay_s(0, 0.5, False) for _ in range(7)] == [1, 2, 4, 8, 16, 30, 30]
    assert policy.delay_s(1, 0.5, False) == 1, "each worker has its own"
    assert policy.delay_s(0, 5.0, True) == 0
    assert policy.delay_s(0, 0.5, False) == 1, "it has answered in between"
