"""Running statistics against NumPy over everything that was seen, and the normalisation by them."""

import io
import math

import numpy as np
import pytest
import torch

from trot.learn.normalizer import Normalizer


def everything(rows):
    """Mean and variance of all rows and of a prior that weighs 1e-4 and has mean 0 and variance 1."""
    count = 1e-4 + len(rows)
    mean = np.array([math.fsum(column) for column in rows.T]) / count
    squares = np.array([math.fsum(column) for column in ((rows - mean) ** 2).T])
    return mean, (squares + 1e-4 * (1 + mean**2)) / count


def fed(*batches):
    normalizer = Normalizer(batches[0].shape[-1])
    for batch in batches:
        normalizer.update(torch.as_tensor(batch))
    return normalizer


def test_it_begins_with_mean_0_and_variance_1():
    normalizer = Normalizer(3)
    observation = torch.tensor([[1.0, -2.0, 0.0]], dtype=torch.float64)
    # sqrt(1 + 1e-5)
    torch.testing.assert_close(normalizer(observation), observation / 1.00000499998750006, rtol=1e-15, atol=0)


def test_two_numbers_by_hand():
    normalizer = fed(np.array([[1.0], [3.0]]))
    # Count 2.0001; mean 4 / 2.0001. Second moment (1 + 9 + 1e-4) / 2.0001, less the squared mean.
    assert normalizer.count.item() == 2.0001
    assert normalizer.mean.item() == pytest.approx(4 / 2.0001, rel=1e-15)
    assert normalizer.variance.item() == pytest.approx(10.0001 / 2.0001 - (4 / 2.0001) ** 2, rel=1e-14)


def test_statistics_of_everything_seen(rng):
    rows = rng.normal(loc=[0.0, 5.0, -300.0, 0.01], scale=[1.0, 0.1, 40.0, 1e-4], size=(700, 4))
    normalizer = fed(*np.split(rows, [1, 64, 128, 600]))
    mean, variance = everything(rows)
    np.testing.assert_allclose(normalizer.mean, mean, rtol=1e-12)
    np.testing.assert_allclose(normalizer.variance, variance, rtol=1e-12)
    assert normalizer.count.item() == pytest.approx(700.0001, rel=1e-15)


def test_any_split_into_batches_gives_the_same(rng):
    rows = rng.normal(loc=[2.0, -7.0], scale=[3.0, 0.2], size=(500, 2))
    whole = fed(rows)
    for _ in range(20):
        cuts = np.sort(rng.choice(np.arange(1, 500), size=rng.integers(1, 60), replace=False))
        split = fed(*np.split(rows, cuts))
        np.testing.assert_allclose(split.mean, whole.mean, rtol=1e-12)
        np.testing.assert_allclose(split.variance, whole.variance, rtol=1e-12)


def test_the_order_of_batches_does_not_matter(rng):
    batches = [rng.normal(loc=loc, size=(50, 3)) for loc in (-4.0, 0.0, 9.0)]
    forward, backward = fed(*batches), fed(*reversed(batches))
    np.testing.assert_allclose(forward.mean, backward.mean, rtol=1e-12)
    np.testing.assert_allclose(forward.variance, backward.variance, rtol=1e-12)


def test_a_small_deviation_around_a_large_mean_is_not_lost(rng):
    rows = 1e4 + 1e-2 * rng.normal(size=(200_000, 1))
    normalizer = fed(*np.split(rows, 100))
    mean, variance = everything(rows)
    np.testing.assert_allclose(normalizer.mean, mean, rtol=1e-14)
    np.testing.assert_allclose(normalizer.variance, variance, rtol=1e-11)
    # The prior's mean, which is 0, lies so far away that it gives most of that variance; what is left is the rows' own.
    left = normalizer.variance.item() - 1e-4 * (1 + mean[0] ** 2) / len(rows)
    assert left == pytest.approx(rows.var(), rel=1e-4)


def test_the_first_rows_all_but_replace_the_prior(rng):
    rows = rng.normal(loc=3.0, size=(64, 2))
    normalizer = fed(rows)
    np.testing.assert_allclose(normalizer.mean, rows.mean(axis=0), rtol=1e-5)
    np.testing.assert_allclose(normalizer.variance, rows.var(axis=0), rtol=1e-4)


def test_millions_of_rows_still_move_the_mean():
    normalizer = fed(np.zeros((1, 1)))
    normalizer.count.fill_(1e8)
    normalizer.update(torch.ones(1, 1))
    # Adding 1 to 1e8 would change nothing in float32.
    assert normalizer.count.item() == 1e8 + 1
    assert normalizer.mean.item() == pytest.approx(1e-8, rel=1e-6)


def test_steps_and_worlds_are_all_rows(rng):
    windows = rng.normal(size=(7, 4, 3))
    np.testing.assert_array_equal(fed(windows).mean, fed(windows.reshape(28, 3)).mean)
    np.testing.assert_array_equal(fed(windows).variance, fed(windows.reshape(28, 3)).variance)


def test_one_row_has_no_variance_of_its_own():
    normalizer = fed(np.array([[2.0]]))
    mean, variance = everything(np.array([[2.0]]))
    assert normalizer.mean.item() == pytest.approx(mean[0], rel=1e-14)
    assert normalizer.variance.item() == pytest.approx(variance[0], rel=1e-10)


@pytest.mark.parametrize(("dtype", "rtol"), [(torch.float64, 1e-14), (torch.float32, 1e-6)])
def test_normalised_as_in_the_2022_program_and_never_clipped(rng, dtype, rtol):
    rows = rng.normal(loc=[1.0, -2.0], scale=[0.5, 3.0], size=(100, 2))
    normalizer = fed(rows)
    mean, variance = everything(rows)
    observation = np.concatenate([rng.normal(size=(20, 2)), [[1e5, -1e5]]])
    found = normalizer(torch.tensor(observation, dtype=dtype))
    assert found.dtype == dtype
    np.testing.assert_allclose(found, (observation - mean) / np.sqrt(variance + 1e-5), rtol=rtol, atol=10 * rtol)


def test_an_entry_that_never_changes_does_not_blow_up():
    normalizer = fed(np.full((10_000, 1), 0.5))
    # The variance is next to 0, and 1e-5 below the root keeps the scale at about sqrt(1e5) = 316.
    assert normalizer(torch.tensor([[0.51]])).item() == pytest.approx(0.01 * 316, rel=0.01)


def test_float32_rows_lead_to_float64_statistics(rng):
    rows = rng.normal(size=(64, 3)).astype(np.float32)
    normalizer = fed(rows)
    assert {buffer.dtype for buffer in normalizer.buffers()} == {torch.float64}
    np.testing.assert_allclose(normalizer.mean, everything(rows.astype(np.float64))[0], rtol=1e-12)


def test_gradients_reach_the_observation_but_not_the_statistics(rng):
    normalizer = fed(rng.normal(scale=2.0, size=(50, 3)))
    observation = torch.zeros(4, 3, dtype=torch.float64, requires_grad=True)
    normalizer.update(observation)
    assert not any(buffer.requires_grad for buffer in normalizer.buffers()) and not list(normalizer.parameters())
    normalizer(observation).sum().backward()
    expected = np.broadcast_to(1 / np.sqrt(normalizer.variance.numpy() + 1e-5), (4, 3))
    np.testing.assert_allclose(observation.grad, expected, rtol=1e-14)


def test_statistics_change_in_place(rng):
    """A captured CUDA graph knows only the memory that they lie in."""
    normalizer = Normalizer(2)
    buffers = [normalizer.count, normalizer.mean, normalizer.variance]
    normalizer.update(torch.from_numpy(rng.normal(size=(5, 2))))
    now = [normalizer.count, normalizer.mean, normalizer.variance]
    assert all(a is b for a, b in zip(buffers, now, strict=True)) and buffers[0].item() == 5.0001


def test_saved_and_loaded_statistics_go_on_bit_for_bit(rng):
    first, second = rng.normal(size=(2, 40, 3))
    normalizer, file = fed(first), io.BytesIO()
    torch.save(normalizer.state_dict(), file)
    file.seek(0)
    other = fed(second)
    other.load_state_dict(torch.load(file, weights_only=True))
    for each in (normalizer, other):
        each.update(torch.from_numpy(second))
    assert set(other.state_dict()) == {"count", "mean", "variance"}
    assert all(a.equal(b) for a, b in zip(normalizer.buffers(), other.buffers(), strict=True))
