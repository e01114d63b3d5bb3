"""Our waiting queue against vLLM's order, without vLLM."""

import random
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chunkwise.engine.paced_queue import PacedQueue


@dataclass(order=True)
class Asked:
    priority: int
    arrival_time: int
    request_id: str = field(compare=False)


def queue_of(count: int, by_priority: bool = False) -> tuple[PacedQueue, list[Asked]]:
    queue = PacedQueue(by_priority)
    made = [Asked(number % 3, number, f"r{number}") for number in range(count)]
    for one in made:
        queue.add_request(one)
    return queue, made


def drained(queue: PacedQueue) -> list[str]:
    return [queue.pop_request().request_id for _ in range(len(queue))]


def test_chosen_ones_stand_first_and_go_back_to_their_place() -> None:
    queue, _ = queue_of(5)
    queue.put_first(["r3", "gone", "r1"])
    assert [queue.pop_request().request_id for _ in range(3)] == ["r3", "r1", "r0"]
    queue, _ = queue_of(5)
    queue.put_first(["r3"])
    assert queue.peek_request().request_id == "r3"
    queue.put_back()
    assert drained(queue) == ["r0", "r1", "r2", "r3", "r4"]
    with pytest.raises(IndexError):
        queue.peek_request()


def test_priorities() -> None:
    queue, made = queue_of(7, by_priority=True)
    assert [one.request_id for one in queue] == ["r0", "r3", "r6", "r1", "r4", "r2", "r5"]
    queue.remove_requests([made[0], made[3]])
    queue.put_first(["r5"])
    assert [queue.pop_request().request_id for _ in range(2)] == ["r5", "r6"]
    queue.prepend_requests([made[0]])
    assert drained(queue) == ["r0", "r1", "r4", "r2"]
    assert not queue


@given(st.integers(0, 2**32), st.booleans())
def test_like_a_plain_list(seed: int, by_priority: bool) -> None:
    rng = random.Random(seed)
    queue, plain = PacedQueue(by_priority), list[Any]()
    for number in range(120):
        match rng.randint(0, 5):
            case 0 | 1:
                one = Asked(rng.randint(0, 2), number, f"r{number}")
                queue.add_request(one)
                plain.append(one)
            case 2:
                one = Asked(rng.randint(0, 2), number, f"r{number}")
                queue.prepend_request(one)
                plain.insert(0, one)
            case 3 if plain:
                one = rng.choice(plain)
                queue.remove_request(one)
                plain.remove(one)
            case 4 if plain:
                one = queue.pop_request()
                assert one is (min(plain) if by_priority else plain[0])
                plain.remove(one)
            case 5 if plain:
                one = rng.choice(plain)
                queue.put_first([one.request_id])
                assert queue.pop_request() is one
                queue.put_back()
                plain.remove(one)
                if rng.random() < 0.5:
                    queue.add_request(one)
                    plain.append(one)
        assert len(queue) == len(plain)
        assert bool(queue) == bool(plain)
    assert list(queue) == (sorted(plain) if by_priority else plain)
