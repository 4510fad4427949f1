// The end of a step, and the adjoint of that: clocks, falls and faults, and fresh starts for episodes that are done.
// A row per world; what an environment has no numbers of is null.
#pragma once

// From the episode that begins where one is done, zeros where starts have none, else what the step left.
CUDA_CALLABLE inline void choose(bool done, const Scalar* fresh, const Scalar* ended, Scalar* begun, long long row,
                                 int width, int lane, int lanes) {
    if (!begun) return;
    for (int k = lane; k < width; k += lanes) {
        const long long at = row * width + k;
        begun[at] = !done ? ended[at] : fresh ? fresh[at] : Scalar(0);
    }
}
// What the step left may have been looked at besides: that derivative comes on top.
CUDA_CALLABLE inline void choose_adjoint(bool done, const Scalar* begun_bar, const Scalar* seen_bar, Scalar* ended_bar,
                                         long long row, int width, int lane, int lanes) {
    if (!ended_bar) return;
    for (int k = lane; k < width; k += lanes) {
        const long long at = row * width + k;
        const Scalar bar = done || !begun_bar ? Scalar(0) : begun_bar[at];
        ended_bar[at] = seen_bar ? bar + seen_bar[at] : bar;
    }
}
// A part of what a fault leaves: it stands at `at` of its row, and the next one behind it.
CUDA_CALLABLE inline void remember(const Scalar* part, int width, Scalar* record, int& at, long long row, int lane,
                                   int lanes) {
    for (int k = lane; part && k < width; k += lanes) record[at + k] = part[row * width + k];
    at += width;
}

CUDA_CALLABLE inline void end_step(const Widths& w, const Ended& e, long long row, int lane, int lanes) {
    const bool sound = e.sound[row], terminated = !sound || (e.fallen && e.fallen[row]);
    const long long clock = e.clock[row] + 1;
    const bool truncated = clock >= e.episode_length, done = terminated || truncated;
    if (lane == 0) {
        e.terminated[row] = terminated;
        e.truncated[row] = truncated;
        e.done[row] = done;
        e.next_clock[row] = done ? 0 : clock;
        e.next_faults[row] = e.faults[row] + !sound;
    }
    Scalar* record = e.next_last_fault + row * w.last_fault_width;
    if (sound) {
        for (int k = lane; k < w.last_fault_width; k += lanes) record[k] = e.last_fault[row * w.last_fault_width + k];
    } else {
        int at = 0;
        REMEMBER_PARTS
    }
    CHOOSE_FIELDS
}
CUDA_CALLABLE inline void end_step_adjoint(const Widths& w, const Bars& b, long long row, int lane, int lanes) {
    const bool done = b.done[row];
    CHOOSE_FIELDS_ADJOINT
}
