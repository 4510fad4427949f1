// Threads that stay inside one call and wait there for work, so that Python's lock is none of theirs. A caller opens a
// door to the blocks of a kernel; whoever comes in takes the next block that nobody has, until none is left.
#pragma once

constexpr int DOORS = 4;         // callers that are helped at once; any other works alone
constexpr int WAKE_AT_ONCE = 2;  // by each that is awake: waking all alone, the caller would come late to its work
constexpr int POLLS = 32;        // between looks at the clock

// The door counts two things in one word, so that both change at once: those inside, and those that may still come in.
constexpr int ONE_INSIDE = 1, ONE_MAY_COME = 1 << 16, INSIDE = ONE_MAY_COME - 1;

struct alignas(64) Door {
    int taken;     // by a caller
    int awaited;   // whether it sleeps until nobody is inside
    const Task* task;
    alignas(64) int count;
    alignas(64) long long next;  // block that nobody has taken
};

struct alignas(64) Room {
    int news;  // changes when a door opens
    alignas(64) int busy;  // threads at work
    alignas(64) int awake, asleep;
    int spin;       // ns to look out for work before a thread sleeps
    int most_busy;  // threads that may be at work at once
    int dismissed;
    Door doors[DOORS];
};
static_assert(sizeof(Room) <= ROOM_BYTES, "Python keeps too little memory for the room");

inline int look(const int& number) { return __atomic_load_n(&number, __ATOMIC_SEQ_CST); }
inline void put(int& number, int value) { __atomic_store_n(&number, value, __ATOMIC_SEQ_CST); }
inline int add(int& number, int value) { return __atomic_add_fetch(&number, value, __ATOMIC_SEQ_CST); }
inline bool replace(int& number, int& expected, int value) {
    return __atomic_compare_exchange_n(&number, &expected, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}

// Linux's way to sleep until a number changes. Kernels are linked with no C library, so Python tells where its functions
// lie. (Warp has a macro of the name int, so a type that begins with it and a bracket needs a name.)
using SystemCall = long (*)(long, ...);
using Status = int;
using ReadClock = Status (*)(int, long long*);
inline void sleep_while(const Crew& crew, int& number, int value) {
    ((SystemCall)crew.syscall)(crew.futex, &number, 128L | 0, (long)value, (void*)0);
}
inline void wake(const Crew& crew, int& number, int most) {
    ((SystemCall)crew.syscall)(crew.futex, &number, 128L | 1, (long)most);
}
inline long long now(const Crew& crew) {
    long long time[2];
    ((ReadClock)crew.clock)(1, time);
    return time[0] * 1000000000 + time[1];
}
inline void pause() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#else
    __asm__ volatile("yield");
#endif
}
// Until the number is another, but not for long.
inline void spin_while(const Crew& crew, const int& number, int value, int nanoseconds, long long since) {
    if (nanoseconds == 0) return;
    do {
        for (int k = 0; k < POLLS; ++k) {
            if (look(number) != value) return;
            pause();
        }
    } while (now(crew) - since < nanoseconds);
}

inline void wake_some(const Crew& crew, Room& room, const Door& door, const Task& task) {
    const int idle = look(room.awake) - look(room.busy), missing = look(door.count) / ONE_MAY_COME - idle;
    if (missing <= 0 || look(room.asleep) == 0) return;
    if (__atomic_load_n(&door.next, __ATOMIC_RELAXED) >= task.blocks) return;
    wake(crew, room.news, missing < WAKE_AT_ONCE ? missing : WAKE_AT_ONCE);
}

// Each worker has scratch of its own, which stays in its core's cache from call to call; the caller has row 0.
inline void take_blocks(const Task& task, long long& next, int row) {
    alignas(64) char call[MOST_CALL_BYTES];
    __builtin_memcpy(call, (const char*)task.call, task.call_bytes);
    if (task.scratch_at >= 0) *(unsigned long long*)(call + task.scratch_at) += row * task.scratch_stride;
    for (;;) {
        const long long first = __atomic_fetch_add(&next, task.grain, __ATOMIC_RELAXED), end = first + task.grain;
        if (first >= task.blocks) return;
        for (long long block = first; block < end && block < task.blocks; ++block) {
            *(int*)(call + task.first_at) = (int)block;
            ((void (*)(const void*, void*))task.kernel)((const void*)task.bounds, call);
        }
    }
}

inline void help(const Crew& crew, Room& room, Door& door, int number) {
    // The task is the caller's memory: it stays until nobody is inside.
    const Task& task = *door.task;
    if (number < task.rows) {
        wake_some(crew, room, door, task);
        take_blocks(task, door.next, number);
    }
    if (add(door.count, -ONE_INSIDE) == 0 && look(door.awaited)) wake(crew, door.count, 1);
}

// Whether there was something to do.
inline bool find_work(const Crew& crew, Room& room, int number) {
    for (Door& door : room.doors) {
        int count = look(door.count);
        while (count >= ONE_MAY_COME) {
            if (add(room.busy, 1) > look(room.most_busy)) {
                add(room.busy, -1);
                return false;
            }
            const bool inside = replace(door.count, count, count - ONE_MAY_COME + ONE_INSIDE);
            if (inside) help(crew, room, door, number);
            add(room.busy, -1);
            if (inside) return true;
        }
    }
    return false;
}

// A thread's whole life.
inline void serve(const Crew& crew, const Member& member) {
    Room& room = *(Room*)crew.room;
    long long since = now(crew);
    add(room.awake, 1);
    for (;;) {
        const int news = look(room.news);
        if (look(room.dismissed)) break;
        if (find_work(crew, room, member.number)) {
            since = now(crew);
            continue;
        }
        spin_while(crew, room.news, news, room.spin, since);
        if (look(room.news) != news) continue;
        // In this order: who opens a door looks for sleepers after the news.
        add(room.asleep, 1);
        add(room.awake, -1);
        sleep_while(crew, room.news, news);
        add(room.awake, 1);
        add(room.asleep, -1);
    }
    add(room.awake, -1);
}

inline Door* free_door(Room& room) {
    for (Door& door : room.doors) {
        int taken = 0;
        if (look(door.taken) == 0 && replace(door.taken, taken, 1)) return &door;
    }
    return nullptr;
}

// Run all blocks of a kernel with the help of the crew, and return when they are done.
inline void share(const Crew& crew, const Task& task) {
    Room& room = *(Room*)crew.room;
    Door* door = free_door(room);
    if (door == nullptr) {
        long long next = 0;
        take_blocks(task, next, 0);
        return;
    }
    put(room.spin, task.spin);
    put(room.most_busy, task.most_busy);
    door->task = &task;
    door->awaited = 0;
    door->next = 0;
    put(door->count, task.helpers * ONE_MAY_COME);
    add(room.news, 1);
    wake_some(crew, room, *door, task);
    take_blocks(task, door->next, 0);
    // Nobody else comes in. Who is inside may be in the middle of a block.
    int inside = __atomic_and_fetch(&door->count, INSIDE, __ATOMIC_SEQ_CST);
    const long long since = now(crew);
    while (inside > 0) {
        spin_while(crew, door->count, inside, task.spin, since);
        inside = look(door->count);
        if (inside == 0 || now(crew) - since < task.spin) continue;
        put(door->awaited, 1);
        sleep_while(crew, door->count, inside);
        inside = look(door->count);
    }
    put(door->taken, 0);
}

inline void dismiss(const Crew& crew) {
    Room& room = *(Room*)crew.room;
    put(room.dismissed, 1);
    add(room.news, 1);
    wake(crew, room.news, INSIDE);
}
