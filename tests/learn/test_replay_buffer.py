"""A ring of rows: its content by hand, draws that are uniform, the same bits after a resume and in a graph."""

import io

import pytest
import torch

from trot.learn.replay_buffer import Field, ReplayBuffer

FIELDS = {"seen": Field(2, torch.float64), "reward": Field(), "fell": Field(dtype=torch.bool)}


def rows(*numbers, device="cpu"):
    """A row that says its number in every field."""
    number = torch.tensor(numbers, device=device)
    return {"seen": torch.stack([number, -number], 1).double(), "reward": number.float(), "fell": number % 2 == 0}


def drawing(seed=0, device="cpu"):
    return torch.Generator(device).manual_seed(seed)


def filled(capacity, *batches):
    buffer = ReplayBuffer(capacity, FIELDS)
    for batch in batches:
        buffer.add(**rows(*batch))
    return buffer


def numbers_in(buffer):
    return buffer.rows_reward.tolist()


@pytest.mark.parametrize(
    ("batches", "content", "position", "count"),
    [
        ([], [0, 0, 0, 0, 0], 0, 0),
        ([[1, 2, 3]], [1, 2, 3, 0, 0], 3, 3),
        ([[1, 2, 3], [4, 5]], [1, 2, 3, 4, 5], 0, 5),
        # Goes round in the middle of a batch, and once more.
        ([[1, 2, 3], [4, 5, 6, 7]], [6, 7, 3, 4, 5], 2, 5),
        ([[1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]], [11, 7, 8, 9, 10], 1, 5),
        # As many as there is room for, from the middle: everything is replaced.
        ([[1, 2, 3], [4, 5, 6, 7, 8]], [6, 7, 8, 4, 5], 3, 5),
        ([[1, 2, 3, 4, 5], []], [1, 2, 3, 4, 5], 0, 5),
    ],
)  # fmt: skip
def test_new_rows_take_the_place_of_the_oldest(batches, content, position, count):
    buffer = filled(5, *batches)
    assert numbers_in(buffer) == content
    assert (int(buffer.position), int(buffer.filled)) == (position, count)
    # The fields of a row stay together.
    there = [number for number in content if number]
    assert buffer.rows_seen.tolist()[: len(there)] == [[number, -number] for number in there]
    assert buffer.rows_fell.tolist()[: len(there)] == [number % 2 == 0 for number in there]


def test_a_draw_takes_whole_rows_of_those_there_are():
    buffer = filled(8, [1, 2, 3], [4])
    drawn = buffer.sample(200, drawing())
    assert {name: (tensor.shape, tensor.dtype) for name, tensor in drawn.items()} == {
        "seen": ((200, 2), torch.float64), "reward": ((200,), torch.float32), "fell": ((200,), torch.bool),
    }  # fmt: skip
    assert set(drawn["reward"].tolist()) == {1, 2, 3, 4}
    for name, expected in rows(*drawn["reward"].int().tolist()).items():
        assert drawn[name].equal(expected)
    # Copies: what is done to them afterwards is not done to the buffer.
    drawn["reward"].zero_()
    assert numbers_in(buffer) == [1, 2, 3, 4, 0, 0, 0, 0]


@pytest.mark.parametrize(
    ("batches", "newest", "expected"),
    [
        ([[1, 2, 3, 4]], 2, {3, 4}),
        ([[1, 2, 3, 4]], 9, {1, 2, 3, 4}),
        # Around the ring: of five places, 4 to 8 are left, and 6 is in the first.
        ([[1, 2, 3, 4, 5], [6, 7, 8]], 4, {5, 6, 7, 8}),
        ([[1, 2, 3, 4, 5], [6, 7, 8]], 2, {7, 8}),
        ([[1, 2, 3, 4, 5]], 1, {5}),
    ],
)
def test_a_draw_from_the_newest_takes_none_that_came_before(batches, newest, expected):
    drawn = filled(5, *batches).sample(300, drawing(), newest=torch.tensor(newest))
    assert set(drawn["reward"].tolist()) == expected
    counts = drawn["reward"].long().bincount()[list(expected)]
    # Each within five deviations of its share.
    share = 1 / len(expected)
    assert ((counts - 300 * share).abs() <= 5 * (300 * share * (1 - share)) ** 0.5).all()


def test_everything_is_all_rows_that_there_are():
    assert filled(5, [1, 2, 3]).everything()["reward"].tolist() == [1, 2, 3]
    assert filled(5, [1, 2, 3, 4], [5, 6]).everything()["reward"].tolist() == [6, 2, 3, 4, 5]


@pytest.mark.parametrize("added", [37, 120])
def test_every_row_has_the_same_chance(added):
    buffer = filled(50, *([number] for number in range(added)))
    there = min(added, 50)
    counts = buffer.sample(100_000, drawing())["reward"].long().bincount()[added - there :]
    assert len(counts) == there
    expected = 100_000 / there
    chi_square = float(((counts - expected) ** 2 / expected).sum())
    # 99.9 % of the chi-square distributions with 36 and with 49 degrees of freedom.
    assert chi_square < {37: 67.99, 50: 85.35}[there]
    # Nor is it more even than chance is: 0.1 %.
    assert chi_square > {37: 15.32, 50: 23.98}[there]


def test_rows_follow_each_other_independently():
    """Of 64 rows, a pair of neighbours in a draw is any of 4096 with the same chance."""
    buffer = filled(64, range(64))
    first, second = buffer.sample(400_000, drawing())["reward"].long().view(-1, 2).unbind(1)
    counts = (64 * first + second).bincount(minlength=4096)
    expected = 200_000 / 4096
    # 99.9 % of the distribution with 4095 degrees of freedom: nearly normal, with deviation (2 * 4095)^0.5.
    assert abs(float(((counts - expected) ** 2 / expected).sum()) - 4095) < 3.3 * (2 * 4095) ** 0.5


def test_rows_beyond_the_bits_of_float32_are_drawn_as_well():
    """Among 2^25 rows, 24 bits would find the even ones alone."""
    part = 2**20
    buffer = ReplayBuffer(32 * part, {"odd": Field(dtype=torch.uint8)})
    for _ in range(32):
        buffer.add(odd=(torch.arange(part) % 2).to(torch.uint8))
    odd = buffer.sample(10_000, drawing())["odd"].double().mean()
    # Five deviations of a mean of 10 000 coin flips.
    assert abs(float(odd) - 0.5) < 0.025


@pytest.mark.parametrize("share", [0.0, 1 - 2**-53])
@pytest.mark.parametrize("count", [1, 3, 2**19, 2**19 + 1, 2**20 - 1])
def test_the_first_and_the_last_share_are_rows_that_there_are(monkeypatch, share, count):
    buffer = ReplayBuffer(2**20, {"number": Field(dtype=torch.int64)})
    buffer.add(number=torch.arange(count))
    monkeypatch.setattr(torch, "rand", lambda size, **_: torch.full((size,), share, dtype=torch.float64))
    assert buffer.sample(2, drawing())["number"].tolist() == [count - 1 if share else 0] * 2


def test_the_generator_decides_and_nothing_else():
    buffer = filled(50, range(50))
    before = torch.random.get_rng_state()
    first, again, other = (buffer.sample(20, drawing(seed))["reward"] for seed in (1, 1, 2))
    assert first.equal(again) and not first.equal(other)
    assert torch.random.get_rng_state().equal(before)


def test_what_was_computed_with_gradients_is_kept_without():
    buffer, weight = ReplayBuffer(4, {"value": Field(3)}), torch.ones(3, requires_grad=True)
    buffer.add(value=weight * torch.ones(2, 3))
    assert not buffer.rows_value.requires_grad and not buffer.sample(2, drawing())["value"].requires_grad


def test_a_resumed_buffer_goes_on_to_the_bit():
    whole, generator = filled(7, [1, 2, 3], [4, 5, 6, 7, 8]), drawing()
    whole.sample(5, generator)
    file = io.BytesIO()
    torch.save({"buffer": whole.state_dict(), "generator": generator.get_state()}, file)
    file.seek(0)
    saved = torch.load(file, weights_only=True)

    resumed, again = filled(7, [100]), drawing(9)
    addresses = [tensor.data_ptr() for tensor in resumed.buffers()]
    resumed.load_state_dict(saved["buffer"])
    again.set_state(saved["generator"])
    assert [tensor.data_ptr() for tensor in resumed.buffers()] == addresses, "captured graphs know them by address"
    for batch in ([9, 10], [11, 12, 13, 14]):
        drawn = []
        for buffer, source in ((whole, generator), (resumed, again)):
            buffer.add(**rows(*batch))
            drawn.append(buffer.sample(6, source))
        assert all(drawn[0][name].equal(drawn[1][name]) for name in FIELDS)
    assert all(one.equal(other) for one, other in zip(whole.buffers(), resumed.buffers(), strict=True))


@pytest.mark.parametrize(
    ("batches", "saved"),
    [([], 0), ([[1, 2, 3]], 3), ([[1, 2, 3], [4, 5, 6, 7]], 7), ([[1, 2, 3], [4, 5, 6, 7, 8]], 7)],
    ids=["empty", "begun", "full", "round"],
)
def test_only_rows_that_there_are_are_saved(batches, saved):
    whole = filled(7, *batches)
    content = whole.state_dict()
    assert [len(content[f"rows_{name}"]) for name in FIELDS] == [saved] * 3
    kept = {name: tensor.clone() for name, tensor in content.items()}
    # Over one that was fuller, and whose other rows must never come up again.
    resumed = filled(7, [100, 101, 102, 103, 104], [105])
    resumed.load_state_dict(kept)
    assert [len(kept[f"rows_{name}"]) for name in FIELDS] == [saved] * 3, "what is loaded stays as it is"
    assert (int(resumed.position), int(resumed.filled)) == (int(whole.position), int(whole.filled))
    for numbers in ([9, 10], [11, 12, 13]):
        for buffer in (whole, resumed):
            buffer.add(**rows(*numbers))
        one, other = (buffer.sample(50, drawing()) for buffer in (whole, resumed))
        assert all(one[name].equal(other[name]) for name in FIELDS) and one["reward"].max() < 100


def test_rows_of_another_kind_or_too_many_are_not_loaded():
    content = filled(7, [1, 2, 3, 4, 5, 6]).state_dict()
    with pytest.raises(RuntimeError, match="size mismatch for rows_seen"):
        filled(5).load_state_dict(content)
    with pytest.raises(RuntimeError, match="size mismatch for rows_seen"):
        ReplayBuffer(7, FIELDS | {"seen": Field(3, torch.float64)}).load_state_dict(content)


def without(name):
    return {key: value for key, value in rows(1, 2).items() if key != name}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (without("fell"), "has the fields seen, reward, fell; given: seen, reward$"),
        (rows(1, 2) | {"colour": torch.zeros(2)}, "has the fields seen, reward, fell; given: seen, .*, colour$"),
        ({}, "has the fields seen, reward, fell; given: nothing$"),
        (rows(1, 2) | {"reward": torch.zeros(3)}, r"'reward' must be \(2,\) of torch.float32, not \(3,\)"),
        (rows(1, 2) | {"reward": torch.zeros(2, 1)}, r"'reward' must be \(2,\) of torch.float32, not \(2, 1\)"),
        (rows(1, 2) | {"reward": torch.zeros(2).double()}, r"not \(2,\) of torch.float64"),
        (rows(1, 2) | {"seen": torch.zeros(2, 3).double()}, r"'seen' must be \(2, 2\) of torch.float64, not \(2, 3\)"),
        (rows(1, 2) | {"seen": torch.zeros(()).double()}, r"'seen' must be \(1, 2\) of torch.float64, not \(\)"),
        (rows(*range(6)), "6 rows at once do not fit into a replay buffer of 5"),
    ],
)
def test_what_does_not_fit_is_named_and_not_kept(given, message):
    buffer = filled(5, [1, 2, 3])
    before = {name: tensor.clone() for name, tensor in buffer.state_dict().items()}
    with pytest.raises(ValueError, match=message):
        buffer.add(**given)
    assert all(tensor.equal(before[name]) for name, tensor in buffer.state_dict().items())


def test_an_empty_buffer_has_nothing_to_draw():
    with pytest.raises(ValueError, match="the replay buffer is empty"):
        filled(5).sample(1, drawing())


def test_a_buffer_without_room_or_fields_is_refused():
    with pytest.raises(ValueError, match="capacity must be at least 1, not 0"):
        ReplayBuffer(0, FIELDS)
    with pytest.raises(ValueError, match="at least one field"):
        ReplayBuffer(5, {})


@pytest.mark.gpu
def test_captured_in_a_graph_it_is_what_it_is_without():
    eager, captured = (ReplayBuffer(7, FIELDS, "cuda") for _ in range(2))
    sources = [drawing(3, "cuda") for _ in range(2)]
    batch = rows(0, 0, 0, device="cuda")

    def work(buffer, source):
        buffer.add(**batch)
        return buffer.sample(64, source)

    # Kernels are loaded on first use, and a capture cannot wait for that.
    work(ReplayBuffer(7, FIELDS, "cuda"), drawing(0, "cuda"))
    graph = torch.cuda.CUDAGraph()
    graph.register_generator_state(sources[1])
    with torch.cuda.graph(graph):
        drawn = work(captured, sources[1])
    for first in (1, 4, 7, 10):
        for name, numbers in rows(first, first + 1, first + 2, device="cuda").items():
            batch[name].copy_(numbers)
        torch.cuda.set_sync_debug_mode("error")
        try:
            expected = work(eager, sources[0])
        finally:
            torch.cuda.set_sync_debug_mode("default")
        graph.replay()
        assert all(drawn[name].equal(expected[name]) for name in FIELDS)
        assert all(one.equal(other) for one, other in zip(eager.buffers(), captured.buffers(), strict=True))
    assert eager.rows_reward.tolist() == [8, 9, 10, 11, 12, 6, 7]


@pytest.mark.gpu
def test_an_empty_buffer_on_the_gpu_gives_zeros():
    drawn = ReplayBuffer(7, FIELDS, "cuda").sample(3, drawing(0, "cuda"))
    assert all((tensor == 0).all() for tensor in drawn.values())
