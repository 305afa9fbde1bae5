//! The thread pool: parallel loops over task indices.

use std::any::Any;
use std::cell::{Cell, UnsafeCell};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, TryLockError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::{SharedSlice, with_scratch};

/// How long an idle worker spins before it parks: longer than the serial gaps between the kernels of a program, too short to
/// matter between programs.
const SPIN: Duration = Duration::from_micros(60);

/// A task body with its lifetime erased; see [`Shared::job`].
type Body = *const (dyn Fn(usize) + Sync);

/// Worker threads that run the tasks of one parallel loop at a time.
pub struct Pool {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
    /// Locked while a loop runs.
    turn: Mutex<()>,
}

/// State shared by the caller and the workers.
struct Shared {
    /// `epoch << 32 | joined << 1 | open`: the number of the current loop, how many workers have joined it, and whether more
    /// may join. `job` may be written only while the loop is closed and no worker is in it.
    state: Padded<AtomicU64>,
    /// The next unclaimed task.
    next: Padded<AtomicUsize>,
    job: UnsafeCell<Job>,
    /// Payload of the first task that panicked.
    panic: Mutex<Option<Box<dyn Any + Send>>>,
    /// For each worker: whether it is parked and must be unparked.
    asleep: Vec<Padded<AtomicBool>>,
    stop: AtomicBool,
}

/// A loop: run `body` for every index below `tasks`.
#[derive(Clone, Copy)]
struct Job {
    body: Body,
    tasks: usize,
}

/// Pads a value to two cache lines against false sharing: the hardware prefetches lines in pairs.
#[repr(align(128))]
struct Padded<T>(T);

const OPEN: u64 = 1;
const JOINED: u64 = 2;
const EPOCH: u64 = 1 << 32;

// SAFETY: `job` is written only by the holder of `Pool::turn` while no worker is in the loop, and read only by workers that
// have joined (the state's acquire and release operations order the two). The body it points to is `Sync`.
unsafe impl Sync for Shared {}
// SAFETY: as above; nothing in it is bound to a thread.
unsafe impl Send for Shared {}

thread_local! {
    /// Whether this thread is running a task. A loop started inside a task runs on this thread alone.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

impl Pool {
    /// A pool of `threads` threads, including the one that calls [`Pool::run`]: one thread means no worker is started.
    /// Zero means one.
    ///
    /// If the operating system refuses to start a thread, the pool has fewer.
    #[expect(clippy::disallowed_methods, reason = "the pool starts the threads for everyone else")]
    pub fn new(threads: usize) -> Pool {
        let wanted = threads.max(1) - 1;
        let shared = Arc::new(Shared {
            state: Padded(AtomicU64::new(0)),
            next: Padded(AtomicUsize::new(0)),
            job: UnsafeCell::new(Job { body: &|_| (), tasks: 0 }),
            panic: Mutex::new(None),
            asleep: (0..wanted).map(|_| Padded(AtomicBool::new(false))).collect(),
            stop: AtomicBool::new(false),
        });
        let spawn = |index| {
            let shared = Arc::clone(&shared);
            let name = format!("cutout-{index}");
            std::thread::Builder::new().name(name).spawn(move || shared.work(index)).ok()
        };
        let workers = (0..wanted).map_while(spawn).collect();
        Pool { shared, workers, turn: Mutex::new(()) }
    }

    /// Number of threads, including the caller.
    pub fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Runs `body` for every index below `tasks`, each exactly once, in no particular order, and returns when all are done.
    ///
    /// The calling thread works too. If called from inside a task, or while another thread uses the pool, the loop runs on the
    /// calling thread alone. If a task panics, no further tasks are started and the panic continues in the caller.
    pub fn run(&self, tasks: usize, body: &(dyn Fn(usize) + Sync)) {
        let turn = if tasks <= 1 || self.workers.is_empty() || INSIDE.get() {
            None
        } else {
            match self.turn.try_lock() {
                Ok(turn) => Some(turn),
                // A task panicked while the lock was held; it guards no data.
                Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
                Err(TryLockError::WouldBlock) => None,
            }
        };
        if turn.is_none() {
            return (0..tasks).for_each(body);
        }
        self.open(Job { body: erase_lifetime(body), tasks });
        let inside = Inside::enter();
        self.shared.claim(body, tasks);
        drop(inside);
        self.close();
        let panic = self.shared.panic.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(panic) = panic {
            drop(turn);
            resume_unwind(panic);
        }
    }

    /// Like [`Pool::run`]; each task also gets `floats` elements of scratch memory, as [`with_scratch`] gives them.
    pub fn run_with_scratch(
        &self,
        tasks: usize,
        floats: usize,
        body: &(dyn Fn(usize, &mut [f32]) + Sync),
    ) {
        self.run(tasks, &|task| with_scratch(floats, |scratch| body(task, scratch)));
    }

    /// Calls `body(i, chunk)` for the `i`-th chunk of `chunk` elements of `slice`, in parallel. The last chunk may be shorter.
    pub fn for_chunks<T: Send>(
        &self,
        slice: &mut [T],
        chunk: usize,
        body: &(dyn Fn(usize, &mut [T]) + Sync),
    ) {
        let length = slice.len();
        let chunk = chunk.max(1);
        let shared = SharedSlice::new(slice);
        self.run(length.div_ceil(chunk), &|task| {
            let start = task * chunk;
            // SAFETY: task numbers differ, so the chunks are disjoint, and `slice` is borrowed until all tasks are done.
            let part = unsafe { shared.part(start, chunk.min(length - start)) };
            body(task, part);
        });
    }

    /// Applies `work` to every item, in parallel. The results are in the order of the items.
    pub fn map<T: Sync, R: Send>(&self, items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
        let mut results: Vec<Option<R>> = items.iter().map(|_| None).collect();
        self.for_chunks(&mut results, 1, &|i, result| result[0] = Some(work(&items[i])));
        results.into_iter().map(|result| result.expect("every task has run")).collect()
    }

    /// Publishes a loop and unparks as many workers as it has tasks for.
    fn open(&self, job: Job) {
        let shared = &*self.shared;
        // SAFETY: the caller holds `turn`, and the previous loop was closed with nobody in it, so no other thread accesses `job`.
        unsafe { *shared.job.get() = job };
        shared.next.0.store(0, Ordering::Relaxed);
        let epoch = shared.state.0.load(Ordering::Relaxed) / EPOCH;
        shared.state.0.store(epoch.wrapping_add(1) * EPOCH + OPEN, Ordering::SeqCst);
        let useful = self.workers.iter().zip(&shared.asleep).take(job.tasks - 1);
        for (worker, asleep) in useful {
            if asleep.0.load(Ordering::SeqCst) && asleep.0.swap(false, Ordering::SeqCst) {
                worker.thread().unpark();
            }
        }
    }

    /// Closes the loop to further workers and waits until those that joined have left.
    fn close(&self) {
        let state = &self.shared.state.0;
        state.fetch_and(!OPEN, Ordering::AcqRel);
        let mut spins = 0u32;
        while !state.load(Ordering::Acquire).is_multiple_of(EPOCH) {
            spins += 1;
            if spins < 10_000 { std::hint::spin_loop() } else { std::thread::yield_now() }
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        for worker in &self.workers {
            worker.thread().unpark();
        }
        for worker in self.workers.drain(..) {
            // A worker catches the panics of its tasks, so joining it cannot fail.
            let _ = worker.join();
        }
    }
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Pool").field("threads", &self.threads()).finish_non_exhaustive()
    }
}

impl Shared {
    /// Body of worker thread `index`: joins every loop until the pool is dropped.
    fn work(&self, index: usize) {
        INSIDE.set(true);
        let mut seen = 0;
        while let Some(epoch) = self.wait(index, seen) {
            seen = epoch;
            if !self.join() {
                continue;
            }
            // SAFETY: this thread has joined, so the job stays unchanged and its body alive until it leaves.
            let job = unsafe { *self.job.get() };
            // SAFETY: as above.
            let body = unsafe { &*job.body };
            self.claim(body, job.tasks);
            self.state.0.fetch_sub(JOINED, Ordering::Release);
        }
    }

    /// Waits for a loop other than `seen` and returns its number, or `None` if the pool is being dropped.
    fn wait(&self, index: usize, seen: u64) -> Option<u64> {
        let started = Instant::now();
        while started.elapsed() < SPIN {
            for _ in 0..32 {
                if let Some(epoch) = self.new_epoch(seen) {
                    return (!self.stop.load(Ordering::Acquire)).then_some(epoch);
                }
                std::hint::spin_loop();
            }
        }
        let asleep = &self.asleep[index].0;
        loop {
            // No wake-up is lost: the caller publishes a loop before it reads `asleep`, this thread sets `asleep` before it
            // reads the state.
            asleep.store(true, Ordering::SeqCst);
            if let Some(epoch) = self.new_epoch(seen) {
                asleep.store(false, Ordering::SeqCst);
                return (!self.stop.load(Ordering::Acquire)).then_some(epoch);
            }
            std::thread::park();
        }
    }

    /// Number of the current loop if it is open and not `seen`; any number once the pool is being dropped.
    fn new_epoch(&self, seen: u64) -> Option<u64> {
        let state = self.state.0.load(Ordering::SeqCst);
        let fresh = state & OPEN != 0 && state / EPOCH != seen;
        (fresh || self.stop.load(Ordering::SeqCst)).then_some(state / EPOCH)
    }

    /// Joins the current loop if it is open.
    fn join(&self) -> bool {
        let join = |state: u64| (state & OPEN != 0).then_some(state + JOINED);
        self.state.0.fetch_update(Ordering::Acquire, Ordering::Relaxed, join).is_ok()
    }

    /// Runs unclaimed tasks until none is left. Stores the first panic.
    fn claim(&self, body: &(dyn Fn(usize) + Sync), tasks: usize) {
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            loop {
                let task = self.next.0.fetch_add(1, Ordering::Relaxed);
                if task >= tasks {
                    break;
                }
                body(task);
            }
        }));
        if let Err(panic) = outcome {
            self.next.0.store(tasks, Ordering::Relaxed);
            self.panic.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(panic);
        }
    }
}

/// Erases the lifetime of `body`. [`Pool::run`] keeps it alive until every worker has left the loop.
fn erase_lifetime<'a>(body: &'a (dyn Fn(usize) + Sync + 'a)) -> Body {
    let body: *const (dyn Fn(usize) + Sync + 'a) = body;
    // SAFETY: only the lifetime bound of the trait object changes; code that dereferences the pointer must ensure that the body is still alive.
    unsafe { std::mem::transmute::<*const (dyn Fn(usize) + Sync + 'a), Body>(body) }
}

/// Marks this thread as running a task until dropped.
struct Inside(bool);

impl Inside {
    fn enter() -> Inside {
        Inside(INSIDE.replace(true))
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        INSIDE.set(self.0);
    }
}

#[cfg(test)]
mod tests;
