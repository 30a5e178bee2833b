"""The host device's queue: a ring of commands, the worker that runs them, and the calls that fill it.

One block of memory, shared by the host thread (the only producer) and the worker (the only consumer), both
in compiled code. The worker never takes the GIL. It polls the ring for a while, as a GPU's front end polls
its doorbell, and then sleeps on a semaphore; so does a waiting host, by its policy (spin or block).
Counters are exact and always kept: a few nanoseconds each. Call and activity records, in the layouts of
`profiler.run.tables`, are kept only while their log addresses are set.
"""

from __future__ import annotations

from reference_trainer.devices.native import (
    call_by_address,
    get64,
    load,
    memcpy,
    now,
    pause,
    put32,
    put64,
    sched_yield,
    sem_post,
    sem_wait,
    store,
)
from reference_trainer.jit import cfunc, njit

# Byte offsets into the block; what the host writes and what the worker writes lie on cache lines of their own.
HEAD = 0  # commands put in
WORKER_SLEEPS = 64
DONE = 128  # commands finished
BUSY_NS = 136
COPY_NS = 144
STAGING_TAIL = 152
ACTIVITIES = 160  # records written
ACTIVITIES_DROPPED = 168
HOST_SLEEPS = 192
SYNCS = 256
H2D = 264
D2H = 272
H2D_BYTES = 280
D2H_BYTES = 288
LAUNCHES = 296
CROSSINGS = 304  # calls from Python into compiled code
CALLS = 312  # records written
STALLED_NS = 368  # the part of waits in which the worker or the host had no core, in sum
DELAYED_NS = 376  # the part of waits in which the host had none
STAGING_HEAD = 320
ACTIVITIES_READ = 328
WORKER_SEMAPHORE = 384
HOST_SEMAPHORE = 448
WORKER_TIMESPEC = 512
SEEN_NS = 528  # when the worker last read the clock between commands; 0: it runs one
LACKED_NS = 536  # time between commands in which the worker had no core
SLEPT_NS = 544  # time between commands in which it slept
HOST_TIMESPEC = 576  # followed by the same three words of a host that waits
_HOST_SEEN_NS, _HOST_LACKED_NS = 592, 600
CALL_LOG = 640  # address, or 0: calls are not recorded
ACTIVITY_LOG = 648
WORKER_POLL_NS = 656
HOST_POLL_NS = 664  # < 0: spin for ever
TID = 672
STAGING = 680  # address of the staging ring
ALLOCATE_NAME = 688  # number of the name that allocations are recorded under
RING = 1024

SLOTS = 1024  # commands in flight, as deep as a CUDA launch queue is
COMMAND = 192  # bytes of one command
STAGING_BYTES = 1 << 20
STAGED_MOST = 1 << 16  # pageable uploads up to 64 KiB are staged and return at once, as CUDA documents of its own
YIELD_NS = 5_000  # a poll without a yield lasts that long; a round trip on two idle cores takes 1 us
LACKED_FROM_NS = 5_000  # a polling thread reads the clock every 1 to 2 us: if later, it had no core in between
BLOCK_BYTES = RING + SLOTS * COMMAND
LOG_RECORDS = 1 << 16
CALL_BYTES = 64
ACTIVITY_BYTES = 48

# A command: function address, kind, name, bytes, staging position to release (or 0), unused, arguments.
_FUNCTION, _KIND, _NAME, _BYTES, _RELEASE, ARGUMENTS = 0, 8, 16, 24, 32, 48

# profiler.run.tables.CallKind and ActivityKind; a test holds them equal.
LAUNCH_CALL, H2D_CALL, D2H_CALL, ALLOC_CALL, SYNC_CALL = 0, 1, 2, 5, 7
KERNEL, H2D_COPY, D2H_COPY = 0, 1, 2


@cfunc("void(int64)", cache=True)
def copy_kernel(command):
    """Copy memory; the arguments are destination, source and bytes."""
    arguments = command + ARGUMENTS
    memcpy(get64(arguments), get64(arguments + 8), get64(arguments + 16))


@njit("void(int64, int64, int64)", cache=True)
def _add(queue, counter, amount):
    put64(queue + counter, get64(queue + counter) + amount)


@njit("int64(int64)", cache=True)
def _seen(timespec):
    """Read the clock. If the thread had no core since the last reading, that time is added to the words behind it."""
    time = now(timespec)
    passed = time - get64(timespec + 16)
    if passed > LACKED_FROM_NS:
        _add(timespec, 24, passed)
    put64(timespec + 16, time)
    return time


@njit("int64(int64, int64, int64, int64, int64, int64)", cache=True)
def _await(word, target, sleeps, semaphore, timespec, poll_ns):
    """Return when the word at `word` has reached `target`: poll for `poll_ns` (< 0: for ever), then sleep until woken.

    A poll that lasts longer than a round trip offers its core to whoever waits for one: were that the other
    end of this queue, spinning on would hold it up for a whole time slice (seen: 600 us a token).
    """
    if load(word) >= target:
        return 0
    began = _seen(timespec)
    while load(word) < target:
        for _ in range(32):
            pause()
            if load(word) >= target:
                return 0
        waited = _seen(timespec) - began
        if poll_ns >= 0 and waited > poll_ns:
            store(sleeps, 1)
            if load(word) >= target:
                store(sleeps, 0)
                return 0
            asleep = get64(timespec + 16)
            sem_wait(semaphore)  # a signal or an old post may end it early: the loop looks again
            awake = now(timespec)
            _add(timespec, 32, awake - asleep)
            put64(timespec + 16, awake)
        elif waited > YIELD_NS:
            sched_yield()
    return 0


@njit("void(int64, int64)", cache=True)
def _wake(sleeps, semaphore):
    if load(sleeps) != 0:
        store(sleeps, 0)
        sem_post(semaphore)


@njit("void(int64, int64, int64, int64, int64)", cache=True)
def _log_activity(queue, command, correlation, begin, end):
    log = get64(queue + ACTIVITY_LOG)
    written = get64(queue + ACTIVITIES)
    if written - load(queue + ACTIVITIES_READ) >= LOG_RECORDS:
        put64(queue + ACTIVITIES_DROPPED, get64(queue + ACTIVITIES_DROPPED) + 1)
        return
    record = log + (written % LOG_RECORDS) * ACTIVITY_BYTES
    put64(record, begin)
    put64(record + 8, end)
    put64(record + 16, get64(command + _BYTES))
    put64(record + 24, correlation)
    put32(record + 32, get64(command + _KIND))
    put32(record + 36, get64(command + _NAME))
    put32(record + 40, 0)
    put32(record + 44, 0)
    store(queue + ACTIVITIES, written + 1)


@njit("boolean(int64, int64)", cache=True)
def _run(queue, done):
    """Run the command that follows `done` earlier ones; False: it has no function, and is the last."""
    timespec = queue + WORKER_TIMESPEC
    command = queue + RING + (done % SLOTS) * COMMAND
    function = get64(command + _FUNCTION)
    if function == 0:
        return False
    begin = _seen(timespec)
    put64(queue + SEEN_NS, 0)
    call_by_address(function, command)
    end = now(timespec)
    put64(queue + SEEN_NS, end)
    _add(queue, BUSY_NS, end - begin)
    if get64(command + _KIND) != KERNEL:
        _add(queue, COPY_NS, end - begin)
    if get64(queue + ACTIVITY_LOG) != 0:
        _log_activity(queue, command, done + 1, begin, end)
        _seen(timespec)  # a waiting host must know of a core that was lost since `end`
    released = get64(command + _RELEASE)
    if released != 0:
        store(queue + STAGING_TAIL, released)
    store(queue + DONE, done + 1)
    _wake(queue + HOST_SLEEPS, queue + HOST_SEMAPHORE)
    return True


@njit("int64(int64)", nogil=True, cache=True)
def work(queue):
    """Run commands in order until one has no function; return how many were run. This is the worker."""
    timespec = queue + WORKER_TIMESPEC
    done = 0
    put64(queue + SEEN_NS, now(timespec))
    while True:
        poll = get64(queue + WORKER_POLL_NS)
        _await(queue + HEAD, done + 1, queue + WORKER_SLEEPS, queue + WORKER_SEMAPHORE, timespec, poll)
        if not _run(queue, done):
            return done
        done += 1


@njit("int64(int64, int64, int64, int64, int64)", cache=True)
def _slot(queue, function, kind, name, size):
    """Wait for a free command and fill it, except for its arguments."""
    head = get64(queue + HEAD)
    while head - load(queue + DONE) >= SLOTS:
        pause()
    command = queue + RING + (head % SLOTS) * COMMAND
    put64(command + _FUNCTION, function)
    put64(command + _KIND, kind)
    put64(command + _NAME, name)
    put64(command + _BYTES, size)
    put64(command + _RELEASE, 0)
    return command


@njit("int64(int64)", cache=True)
def _submit(queue):
    head = get64(queue + HEAD) + 1
    store(queue + HEAD, head)
    _wake(queue + WORKER_SLEEPS, queue + WORKER_SEMAPHORE)
    return head


@njit("void(int64, int64, int64, int64, int64, int64, int64, int64, int64)", cache=True)
def _log_call(queue, begin, end, blocked_from, size, correlation, kind, name, site):
    """Append a call; `begin` 0: not recorded, `end` 0: it ends now, `blocked_from` 0: it did not block.

    One that blocked did so for 1 ns at least: clocks of some virtual machines move by 100 ns at a time.
    """
    if begin == 0:
        return
    if end == 0:
        end = now(queue + HOST_TIMESPEC)
    record = get64(queue + CALL_LOG) + (get64(queue + CALLS) % LOG_RECORDS) * CALL_BYTES
    put64(record, begin)
    put64(record + 8, end)
    put64(record + 16, max(end - blocked_from, 1) if blocked_from != 0 else 0)
    put64(record + 24, size)
    put64(record + 32, correlation)
    put64(record + 40, get64(queue + TID))
    put32(record + 48, kind)
    put32(record + 52, name)
    put32(record + 56, site)
    put32(record + 60, 0)
    _add(queue, CALLS, 1)


@njit("void(int64, int64)", nogil=True, cache=True)
def settle(queue, sequence):
    """Block until command `sequence` has finished, without counting or logging the wait."""
    poll = get64(queue + HOST_POLL_NS)
    _await(queue + DONE, sequence, queue + HOST_SLEEPS, queue + HOST_SEMAPHORE, queue + HOST_TIMESPEC, poll)


@njit("int64(int64, int64)", cache=True)
def _wait(queue, sequence):
    """Block until command `sequence` has finished; return when blocking began (0: not recording)."""
    began = now(queue + HOST_TIMESPEC)
    worker_lacked, host_lacked = get64(queue + LACKED_NS), get64(queue + _HOST_LACKED_NS)
    put64(queue + _HOST_SEEN_NS, began)
    settle(queue, sequence)
    waited = _seen(queue + HOST_TIMESPEC) - began  # the worker has run the command, so that its words are up to date
    worker_lacked, host_lacked = get64(queue + LACKED_NS) - worker_lacked, get64(queue + _HOST_LACKED_NS) - host_lacked
    # the host often loses its core while the worker has none, and sees only later that the worker is done
    _add(queue, STALLED_NS, min(waited, worker_lacked + host_lacked))
    _add(queue, DELAYED_NS, min(waited, host_lacked))
    _add(queue, SYNCS, 1)
    return began if get64(queue + CALL_LOG) != 0 else 0


@njit(cache=True)
def launch(queue, function, name, begin, site, *arguments):
    """Put a kernel into the queue; `arguments` are int64 (addresses and sizes).

    The calling thread holds the GIL, which a call takes too long to release and take again.

    :returns: False if the queue is full, and nothing was put into it: `settle` waits without the GIL.
    """
    if get64(queue + HEAD) - load(queue + DONE) >= SLOTS:
        return False
    command = _slot(queue, function, KERNEL, name, 0)
    for index in range(len(arguments)):
        put64(command + ARGUMENTS + 8 * index, arguments[index])
    sequence = _submit(queue)
    _add(queue, LAUNCHES, 1)
    _add(queue, CROSSINGS, 1)
    _log_call(queue, begin, 0, 0, 0, sequence, LAUNCH_CALL, name, site)
    return True


@njit("void(int64, int64, int64, int64)", cache=True)
def _put_copy(command, destination, source, size):
    put64(command + ARGUMENTS, destination)
    put64(command + ARGUMENTS + 8, source)
    put64(command + ARGUMENTS + 16, size)


@njit("int64(int64, int64)", cache=True)
def _stage(queue, size):
    """Reserve `size` bytes of the staging ring, when they are free; return the position behind them."""
    position = get64(queue + STAGING_HEAD)
    if position % STAGING_BYTES + size > STAGING_BYTES:
        position += STAGING_BYTES - position % STAGING_BYTES  # never across the ring's end
    while position + size - load(queue + STAGING_TAIL) > STAGING_BYTES:
        pause()
    put64(queue + STAGING_HEAD, position + size)
    return position + size


@njit("void(int64, int64, int64, int64, int64, int64, int64, int64, int64, int64)", nogil=True, cache=True)
def upload(queue, function, destination, source, size, pinned, name, begin, site, allocated):
    """Copy host memory to the device. Pinned memory is read later, small pageable memory is staged now,
    large pageable memory blocks until it is copied (a hidden sync, as with CUDA).

    `allocated`: when the allocation of the destination ended, ns; 0 when it had none or nothing records.
    """
    if allocated != 0:
        _log_call(queue, begin, allocated, 0, size, 0, ALLOC_CALL, get64(queue + ALLOCATE_NAME), site)
        begin = allocated
    command = _slot(queue, function, H2D_COPY, name, size)
    blocked = 0
    if pinned == 0 and size <= STAGED_MOST:
        behind = _stage(queue, size)
        staged = get64(queue + STAGING) + (behind - size) % STAGING_BYTES
        memcpy(staged, source, size)
        put64(command + _RELEASE, behind)
        source = staged
    _put_copy(command, destination, source, size)
    sequence = _submit(queue)
    if pinned == 0 and size > STAGED_MOST:
        blocked = _wait(queue, sequence)
    _add(queue, H2D, 1)
    _add(queue, H2D_BYTES, size)
    _add(queue, CROSSINGS, 1)
    _log_call(queue, begin, 0, blocked, size, sequence, H2D_CALL, name, site)


@njit("int64(int64, int64, int64, int64, int64, int64)", cache=True)
def _put_download(queue, function, destination, source, size, name):
    command = _slot(queue, function, D2H_COPY, name, size)
    _put_copy(command, destination, source, size)
    _add(queue, D2H, 1)
    _add(queue, D2H_BYTES, size)
    _add(queue, CROSSINGS, 1)
    return _submit(queue)


@njit("void(int64, int64, int64, int64, int64, int64, int64, int64)", nogil=True, cache=True)
def download(queue, function, destination, source, size, name, begin, site):
    """Copy device memory to the host and block until it is there: a copy and a sync.

    The host counts as blocked from here on: it can do nothing else until the copy has come.
    """
    blocked = now(queue + HOST_TIMESPEC) if begin != 0 else 0
    sequence = _put_download(queue, function, destination, source, size, name)
    _wait(queue, sequence)
    _log_call(queue, begin, 0, blocked, size, sequence, D2H_CALL, name, site)


@njit("int64(int64, int64, int64, int64, int64, int64, int64, int64)", nogil=True, cache=True)
def fetch(queue, function, destination, source, size, name, begin, site):
    """Copy device memory to pinned host memory and return at once; `wait` for the number that is returned."""
    sequence = _put_download(queue, function, destination, source, size, name)
    _log_call(queue, begin, 0, 0, size, sequence, D2H_CALL, name, site)
    return sequence


@njit("void(int64, int64, int64, int64, int64)", nogil=True, cache=True)
def wait(queue, sequence, name, begin, site):
    """Block until command `sequence` has finished; later commands continue."""
    blocked = _wait(queue, sequence)
    _add(queue, CROSSINGS, 1)
    _log_call(queue, begin, 0, blocked, 0, sequence, SYNC_CALL, name, site)


@njit("void(int64, int64, int64, int64)", cache=True)
def allocated(queue, size, begin, site):
    """Record an allocation that began at `begin` and ends now."""
    _log_call(queue, begin, 0, 0, size, 0, ALLOC_CALL, get64(queue + ALLOCATE_NAME), site)


@njit("void(int64)", cache=True)
def stop(queue):
    """Tell the worker to return after all earlier commands."""
    _slot(queue, 0, KERNEL, 0, 0)
    _submit(queue)
