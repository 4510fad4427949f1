"""A run's metrics are read as they were written, also after a cut in the middle of a line."""

import csv
import math

import numpy as np
import pytest
from run_contents import rows


def iterations(run):
    """As another program reads them."""
    with (run.path / "metrics.csv").open(newline="") as file:
        return [int(row["iteration"]) for row in csv.DictReader(file)]


def test_metrics_are_read_as_they_were_written(run):
    assert run.read_metrics() == [] and run.last_metrics() == {}
    written = [
        {"iteration": 1, "return": 0.1, "loss, squared": float(np.float32(0.1))},
        {"iteration": 2, "return": -1e-300, "loss, squared": math.inf},
        {"loss, squared": 3, "return": np.float64(2 / 3), "iteration": 3},
    ]
    run.append_metrics(written[:2])
    run.append_metrics([])
    run.append_metrics(written[2:])
    assert run.read_metrics() == written
    assert run.last_metrics() == written[-1]
    with (run.path / "metrics.csv").open(newline="") as file:
        table = list(csv.reader(file))
    assert table[0] == ["iteration", "return", "loss, squared"]
    assert [row[0] for row in table[1:]] == ["1", "2", "3"], "whole numbers stay whole"
    run.append_metrics([{"iteration": 4, "return": math.nan, "loss, squared": True}])
    assert math.isnan(run.last_metrics()["return"]) and run.last_metrics()["loss, squared"] == 1


def test_other_columns_are_refused_and_nothing_is_written(run):
    run.append_metrics(rows(1))
    before = (run.path / "metrics.csv").read_bytes()
    for bad in ({"iteration": 2}, {**rows(2)[0], "reward": 1.0}):
        with pytest.raises(ValueError, match=r"metrics.csv has the columns iteration, return, .*; this row has iter"):
            run.append_metrics([*rows(2), bad])
    assert (run.path / "metrics.csv").read_bytes() == before


def test_metrics_cut_at_any_byte_lose_only_the_last_line(run):
    run.append_metrics(rows(1, 2, 3))
    file = run.path / "metrics.csv"
    whole = file.read_bytes()
    for length in range(len(whole) + 1):
        file.write_bytes(whole[:length])
        complete = max(whole[:length].count(b"\n") - 1, 0)
        assert run.read_metrics() == rows(1, 2, 3)[:complete]
        assert run.last_metrics() == (rows(complete)[0] if complete else {})
        run.append_metrics(rows(9))
        assert iterations(run) == [*range(1, complete + 1), 9]


def test_a_broken_line_in_the_middle_is_named(run):
    run.append_metrics(rows(1, 2, 3))
    file = run.path / "metrics.csv"
    whole = file.read_text().splitlines(keepends=True)
    for bad in ("2,abc,1.0,120.0\n", "2,0.5\n", "\0\0\0\n", "\n"):
        file.write_text("".join([*whole[:2], bad, whole[3]]))
        with pytest.raises(ValueError, match=r"metrics.csv is broken in line 3: "):
            run.read_metrics()


def test_truncated_metrics_end_with_the_iteration(run):
    run.truncate_metrics(5)
    assert not (run.path / "metrics.csv").exists()
    run.append_metrics(rows(*range(1, 11)))
    expected = (run.path / "metrics.csv").read_text().splitlines()[:8]
    with (run.path / "metrics.csv").open("a") as file:
        file.write("11,3.6")
    run.truncate_metrics(7)
    assert (run.path / "metrics.csv").read_text().splitlines() == expected, "what is kept is kept to the letter"
    run.append_metrics(rows(8))
    assert iterations(run) == list(range(1, 9))
    run.truncate_metrics(0)
    assert run.read_metrics() == []
    run.append_metrics(rows(1))
    assert iterations(run) == [1]


@pytest.mark.parametrize(
    ("change", "broken", "lost", "kept"),
    [
        (lambda lines: [*lines[:3], "\0\0\0", *lines[4:]], 1, "3", "12456"),
        (
            lambda lines: [*lines[:3], "3,0.5", "\r,\r", *lines[5:]],
            2,
            "3 to 4",
            "1256",
        ),
        (
            lambda lines: [*lines[:3], "7" + lines[3][1:], *lines[4:]],
            1,
            "3",
            "12456",
        ),
        (
            lambda lines: [*lines[:3], "0" + lines[3][1:], *lines[4:]],
            1,
            "3",
            "12456",
        ),
        # Two processes wrote at once.
        (lambda lines: [*lines[:6], *lines[4:]], 2, "", "123456"),
        (lambda lines: lines[:4], 0, "4 to 6", "123"),
        (lambda lines: ["iterbtion" + lines[0][9:], *lines[1:]], 1, "", "123456"),
        (lambda lines: lines[1:], 0, "", "123456"),
        (lambda lines: [], 0, "1 to 6", ""),
    ],
)
def test_damaged_metrics_are_mended_up_to_the_iteration(run, change, broken, lost, kept):
    run.append_metrics(rows(*range(1, 9)))
    file = run.path / "metrics.csv"
    columns = list(rows(1)[0])
    whole = file.read_text().splitlines()
    damaged = "".join(f"{line}\n" for line in change(whole)).encode()
    file.write_bytes(damaged)
    rows_lost = f"the rows of iterations {lost} are lost" if lost else "no row is lost"
    assert run.truncate_metrics(6, columns) == f"lines that cannot be read: {broken}; {rows_lost}"
    assert run.read_metrics() == rows(*map(int, kept))
    assert file.read_text().splitlines() == [whole[0], *(whole[int(number)] for number in kept)]
    if damaged:
        assert (run.path / "metrics.damaged.csv").read_bytes() == damaged
    run.append_metrics(rows(7))
    assert run.truncate_metrics(7, columns) is None, "once is enough"


def test_metrics_that_are_whole_are_not_written_again(run):
    run.append_metrics(rows(1, 2, 3))
    before = (run.path / "metrics.csv").stat()
    assert run.truncate_metrics(3) is None
    assert (run.path / "metrics.csv").stat().st_ino == before.st_ino
    assert not (run.path / "metrics.damaged.csv").exists()


def test_a_number_that_was_changed_is_told(run):
    run.append_metrics(rows(1, 2, 3))
    checksum = run.metrics_checksum()
    run.append_metrics(rows(4))
    columns, file = list(rows(1)[0]), run.path / "metrics.csv"
    assert run.truncate_metrics(3, columns, checksum) is None
    damaged = file.read_text().replace("120.0", "130.0")
    file.write_text(damaged)
    told = "every line can be read, but not every number is the one that was written"
    assert run.truncate_metrics(3, columns, checksum) == told
    assert file.read_text() == (run.path / "metrics.damaged.csv").read_text() == damaged
    assert run.truncate_metrics(3, columns) is None, "earlier versions kept no checksum"


def test_metrics_without_iterations_cannot_be_truncated(run):
    run.append_metrics([{"return": 1.0}])
    with pytest.raises(ValueError, match=r"metrics.csv has no column 'iteration'"):
        run.truncate_metrics(1)


def test_best_return(run):
    assert run.best_return() is None
    run.append_metrics([{"iteration": 1, "best_return": -math.inf}])
    assert run.best_return() is None, "before the first episode has ended"
    run.append_metrics([{"iteration": 2, "best_return": 12.5}])
    assert run.best_return() == 12.5
