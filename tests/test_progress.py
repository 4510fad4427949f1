"""The progress line, on a terminal that is only acted, with a clock that tests turn."""

import io
import os

import pytest

from trot.progress import Progress, announce, fit, short

VALUES = {"return": 1234.5678, "length": 1000.0, "value loss": 0.0123456, "gradient": 1.5, "steps/s": 123456.0}


class Clock:
    def __init__(self):
        self.now = 5000.0

    def __call__(self):
        return self.now


class Terminal(io.StringIO):
    """Obeys carriage returns and line ends as a terminal does, and refuses a line so long that it would wrap."""

    def __init__(self, columns):
        super().__init__()
        self.columns, self.cells, self.cursor, self.finished, self.redraws = columns, [], 0, [], 0

    def isatty(self):
        return True

    def write(self, text):
        for sign in text:
            if sign == "\r":
                self.cursor, self.redraws = 0, self.redraws + 1
            elif sign == "\n":
                self.finished.append(self.line)
                self.cells, self.cursor = [], 0
            else:
                # In the last column many terminals wrap at once.
                assert self.cursor < self.columns - 1, "wraps"
                assert sign.isprintable()
                self.cells[self.cursor : self.cursor + 1] = [sign]
                self.cursor += 1
        return len(text)

    @property
    def line(self):
        return "".join(self.cells).rstrip()


@pytest.fixture
def terminal(monkeypatch):
    """Makes a terminal of some width."""
    monkeypatch.setenv("TERM", "xterm")

    def make(columns):
        monkeypatch.setenv("COLUMNS", str(columns))
        return Terminal(columns)

    return make


def test_a_wide_terminal_shows_everything(terminal):
    clock, screen = Clock(), terminal(200)
    with Progress(2000, screen, clock=clock) as progress:
        progress.update(0, VALUES)
        clock.now += 10
        progress.update(500, VALUES, "12% of worlds have an adjoint above 1e3")
        assert screen.line == (
            "[######..................] 500/2000  return 1235  length 1000  value loss 0.01235  gradient 1.5  "
            "steps/s 123k  0:00:30 left  12% of worlds have an adjoint above 1e3"
        )
        assert screen.finished == []
    assert len(screen.finished) == 1


def test_parts_of_a_per_cent(terminal):
    clock, screen = Clock(), terminal(200)
    with Progress(100, screen, clock=clock, unit=" %") as progress:
        progress.update(0.0, {})
        clock.now += 10
        progress.update(12.5, {})
        assert screen.line == "[###.....................] 12.5/100 %  0:01:10 left"


@pytest.mark.parametrize("columns", [1, 2, 3, 5, 10, 20, 40, 60, 80, 100, 120, 200])
def test_no_line_wraps_and_the_return_outlives_the_rest(terminal, columns):
    clock, screen = Clock(), terminal(columns)
    with Progress(100_000, screen, clock=clock) as progress:
        for done in (1, 99_999, 50_000):
            for note in ("a warning\nof two lines, longer than most terminals: " + "x" * 200, "short", None):
                clock.now += 50
                progress.update(done, VALUES, note)
    if columns == 1:
        assert screen.finished == [], "no room for anything"
        return
    if columns >= 60:
        assert screen.finished[0].split("] ")[-1].startswith("50000/100000  return 1235")
        assert screen.finished[0].endswith("left")


def test_a_shorter_line_wipes_out_the_longer_one_before(terminal):
    clock, screen = Clock(), terminal(80)
    progress = Progress(10, screen, clock=clock)
    progress.update(1, {"return": 1.0}, "w" * 60)
    clock.now += 1
    progress.update(2, {"return": 2.0})
    assert "w" not in screen.line and "return 2" in screen.line


def test_values_give_way_from_the_last_to_the_first():
    texts = ["1/9", "return 7", "length 8", "loss 9", "0:00:10 left", "careful"]
    full = "  ".join(texts)
    # A bar of six and what is around it takes nine.
    assert fit(texts, 0.5, len(full) + 9) == f"[###...] {full}"
    assert fit(texts, 0.5, len(full) + 8) == "[######.......] 1/9  return 7  length 8  0:00:10 left  careful"
    assert fit(texts, 0.0, 45) == "[......] 1/9  return 7  0:00:10 left  careful"
    assert fit(texts, 0.0, 44) == "1/9  return 7  0:00:10 left  careful"
    assert fit(texts, 0.0, 30) == "1/9  return 7  0:00:10 left..."


def test_at_80_columns_a_training_keeps_its_bar(terminal):
    clock, screen = Clock(), terminal(80)
    with Progress(2000, screen, clock=clock) as progress:
        for done in (0, 1000, 1999):
            clock.now += 600
            progress.update(done, VALUES)
            assert screen.line.startswith("[") and f"] {done}/2000  return 1235  length 1000" in screen.line


def test_what_a_wait_is_for_is_said_on_a_terminal_alone(terminal):
    screen, log = terminal(80), io.StringIO()
    for stream in (screen, log):
        announce("building kernels ...", stream)
    assert (screen.finished, log.getvalue()) == (["building kernels ..."], "")


def test_the_bar_takes_the_room_that_is_left():
    texts = ["1/2", "", ""]
    assert fit(texts, 0.5, len("1/2") + 8) == "1/2"
    assert fit(texts, 0.5, len("1/2") + 9) == "[###...] 1/2"
    assert fit(texts, 0.5, 1000) == f"[{12 * '#'}{12 * '.'}] 1/2"
    assert fit(texts, 7.0, 1000) == f"[{24 * '#'}] 1/2"
    assert fit(texts, -1.0, 1000) == f"[{24 * '.'}] 1/2"


def test_at_most_ten_redraws_a_second_and_the_last_update_is_shown(terminal):
    clock, screen = Clock(), terminal(80)
    with Progress(1000, screen, clock=clock) as progress:
        for done in range(1, 1000):
            clock.now += 0.001
            progress.update(done, {"return": float(done)})
        assert 9 <= screen.redraws <= 11
    assert "999/1000  return 999" in screen.finished[0]


def test_a_log_file_gets_a_line_now_and_then(monkeypatch):
    clock, log = Clock(), io.StringIO()
    with Progress(100, log, interval=10.0, clock=clock) as progress:
        for done in range(1, 101):
            progress.update(done, {"return": 2.0 * done}, "careful" if done == 12 else None)
            clock.now += 0.9
    # 90 s: the first, one in every ten seconds or just after (12 updates apart), and the last.
    assert [line.split()[0] for line in log.getvalue().splitlines()] == [
        f"{done}/100" for done in (1, 13, 25, 37, 49, 61, 73, 85, 97, 100)
    ]
    assert log.getvalue().splitlines()[0] == "1/100  return 2"
    assert log.getvalue().splitlines()[1] == "13/100  return 26  0:01:18 left"
    assert log.getvalue().splitlines()[-1] == "100/100  return 200  in 0:01:30"
    assert "\r" not in log.getvalue()


def test_a_dumb_terminal_is_treated_as_a_log_file(terminal, monkeypatch):
    screen = terminal(80)
    monkeypatch.setenv("TERM", "dumb")
    with Progress(10, screen, clock=Clock()) as progress:
        progress.update(1, {})
    assert (screen.redraws, screen.finished) == (0, ["1/10"])


def test_time_left_forgets_a_slow_beginning():
    clock, log = Clock(), io.StringIO()
    progress = Progress(1000, log, interval=0.0, clock=clock)
    progress.update(0, {})
    clock.now += 600  # compiling
    progress.update(1, {})
    assert log.getvalue().splitlines()[-1] == "1/1000  6 days, 22:30:00 left"
    for done in range(2, 102):
        clock.now += 2
        progress.update(done, {})
    # 899 iterations of 2 s.
    assert log.getvalue().splitlines()[-1] == "101/1000  0:29:58 left"


def test_a_resumed_run_counts_only_its_own_iterations():
    clock, log = Clock(), io.StringIO()
    progress = Progress(1000, log, interval=0.0, clock=clock)
    progress.update(900, {})
    clock.now += 10
    progress.update(910, {})
    assert log.getvalue().splitlines() == ["900/1000", "910/1000  0:01:30 left"]


def test_without_updates_nothing_is_written(terminal):
    screen, log = terminal(80), io.StringIO()
    for stream in (screen, log):
        with Progress(10, stream):
            pass
    assert (screen.redraws, screen.finished, log.getvalue()) == (0, [], "")


def test_a_failing_run_leaves_its_last_line_and_the_error(terminal):
    clock, screen = Clock(), terminal(80)
    with pytest.raises(ZeroDivisionError), Progress(10, screen, clock=clock) as progress:
        progress.update(1, {"return": 1.0})
        progress.update(2, {"return": 2.0})
        raise ZeroDivisionError
    assert len(screen.finished) == 1 and "2/10  return 2" in screen.finished[0]


def test_closing_twice_leaves_one_line(terminal):
    screen = terminal(80)
    progress = Progress(10, screen, clock=Clock())
    progress.update(1, {})
    progress.close()
    progress.close()
    assert len(screen.finished) == 1


@pytest.mark.skipif(os.name == "nt", reason="needs pseudo-terminals")
def test_the_width_is_that_of_the_stream_s_own_terminal(monkeypatch):
    import fcntl
    import struct
    import termios

    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("TERM", "xterm")
    near, far = os.openpty()
    try:
        fcntl.ioctl(far, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 50, 0, 0))
        with os.fdopen(os.dup(far), "w") as stream:
            progress = Progress(2000, stream, clock=Clock())
            progress.update(1, VALUES, "careful")
        shown = os.read(near, 4096).decode()
    finally:
        os.close(near)
        os.close(far)
    assert (
        shown.startswith("\r[..................] 1/2000  return 1235")
        and shown.endswith("careful")
        and len(shown) <= 50
    )


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (8012.3, "8012"),
        (-8012.3, "-8012"),
        (12_345.6, "12346"),
        (123_456.0, "123k"),
        (999_999.0, "1000k"),
        (1_234_567.0, "1.23M"),
        (-2e7, "-20.00M"),
        (1.5e-5, "1.5e-05"),
        (float("nan"), "nan"),
        (float("inf"), "inf"),
        (7, "7"),
        ("as it is", "as it is"),
    ],
)
def test_short_numbers(value, text):
    assert short(value) == text
