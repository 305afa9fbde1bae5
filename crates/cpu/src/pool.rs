//! The thread pool: parallel loops over task indices, and scratch memory per thread.
//!
//! Kernels cut their work into tasks by shape alone, never by thread count. Which thread runs a task does not change what
//! it computes, so a result has the same bits for any number of threads.

use std::any::Any;
use std::cell::{Cell, RefCell, UnsafeCell};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, TryLockError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::memory::AlignedBuffer;

/// How long an idle worker looks for work before it sleeps: longer than the serial gaps between the kernels of a
/// program, short enough not to be noticed between programs.
const SPIN: Duration = Duration::from_micros(60);

/// A task body without its lifetime; see [`Shared::job`].
type Body = *const (dyn Fn(usize) + Sync);

/// Threads that run the tasks of one loop at a time.
pub struct Pool {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
    /// Held while a loop is under way.
    turn: Mutex<()>,
}

/// What the caller and the workers share.
struct Shared {
    /// `epoch << 32 | joined << 1 | open`: the number of the current loop, how many workers are in it, and whether more may
    /// join. The loop's data may be written only while nobody is in it and it is not open.
    state: Line<AtomicU64>,
    /// The next unclaimed task.
    next: Line<AtomicUsize>,
    job: UnsafeCell<Job>,
    /// What a task panicked with.
    panic: Mutex<Option<Box<dyn Any + Send>>>,
    /// Which workers sleep and must be woken.
    asleep: Vec<Line<AtomicBool>>,
    stop: AtomicBool,
}

/// A loop: run `body` for every index below `tasks`.
#[derive(Clone, Copy)]
struct Job {
    body: Body,
    tasks: usize,
}

/// Keeps a value on cache lines of its own (two, because lines are fetched in pairs).
#[repr(align(128))]
struct Line<T>(T);

const OPEN: u64 = 1;
const JOINED: u64 = 2;
const EPOCH: u64 = 1 << 32;

// SAFETY: `job` is written only by the holder of `Pool::turn` while no worker is in the loop, and read only by workers that
// have joined (the state's acquire and release operations order the two). The body it points to is `Sync`.
unsafe impl Sync for Shared {}
// SAFETY: as above; nothing in it is bound to a thread.
unsafe impl Send for Shared {}

thread_local! {
    /// Whether this thread is running a task of a loop, so that a nested loop runs on it alone.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
    /// Scratch buffers not in use, at most one per level of nesting.
    static SCRATCH: RefCell<Vec<AlignedBuffer<f32>>> = const { RefCell::new(Vec::new()) };
}

impl Pool {
    /// A pool in which `threads` threads work, counting the one that calls [`Pool::run`]. Zero means one.
    ///
    /// Where the operating system refuses a thread the pool has fewer.
    pub fn new(threads: usize) -> Pool {
        let wanted = threads.max(1) - 1;
        let shared = Arc::new(Shared {
            state: Line(AtomicU64::new(0)),
            next: Line(AtomicUsize::new(0)),
            job: UnsafeCell::new(Job { body: &|_| (), tasks: 0 }),
            panic: Mutex::new(None),
            asleep: (0..wanted).map(|_| Line(AtomicBool::new(false))).collect(),
            stop: AtomicBool::new(false),
        });
        let spawn = |index| {
            let shared = Arc::clone(&shared);
            let name = format!("cutout-cpu-{index}");
            std::thread::Builder::new().name(name).spawn(move || shared.work(index)).ok()
        };
        let workers = (0..wanted).map_while(spawn).collect();
        Pool { shared, workers, turn: Mutex::new(()) }
    }

    /// How many threads work in this pool, the caller included.
    pub fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Runs `body` for every index below `tasks`, each exactly once, in no particular order, and returns when all are done.
    ///
    /// The calling thread works too. Called from inside a task, or while another thread uses the pool, the loop runs on the
    /// calling thread alone. If a task panics, no further tasks are begun and the panic continues in the caller.
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

    /// Like [`Pool::run`]; each task also gets `floats` elements of scratch memory, aligned to 64 bytes, with unspecified
    /// contents. The memory belongs to the thread and is kept for later loops. A thread that cannot get it ends the loop as
    /// [`with_scratch`] says.
    pub fn run_with_scratch(
        &self,
        tasks: usize,
        floats: usize,
        body: &(dyn Fn(usize, &mut [f32]) + Sync),
    ) {
        self.run(tasks, &|task| with_scratch(floats, |scratch| body(task, scratch)));
    }

    /// Publishes a loop and wakes the workers it can use.
    fn open(&self, job: Job) {
        let shared = &*self.shared;
        // SAFETY: the caller holds `turn`, and the previous loop was closed with nobody in it, so nobody else accesses `job`.
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

    /// Lets nobody else join and waits until all who joined have left.
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
    /// The life of a worker.
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

    /// Waits for a loop other than `seen` and returns its number, or nothing if the pool is being dropped.
    fn wait(&self, index: usize, seen: u64) -> Option<u64> {
        let started = Instant::now();
        while started.elapsed() < SPIN {
            for _ in 0..32 {
                if let Some(epoch) = self.news(seen) {
                    return (!self.stop.load(Ordering::Acquire)).then_some(epoch);
                }
                std::hint::spin_loop();
            }
        }
        let asleep = &self.asleep[index].0;
        loop {
            // The caller publishes and then looks at `asleep`; this thread sets `asleep` and then looks for what was published.
            asleep.store(true, Ordering::SeqCst);
            if let Some(epoch) = self.news(seen) {
                asleep.store(false, Ordering::SeqCst);
                return (!self.stop.load(Ordering::Acquire)).then_some(epoch);
            }
            std::thread::park();
        }
    }

    /// The number of an open loop other than `seen`; any number once the pool is being dropped.
    fn news(&self, seen: u64) -> Option<u64> {
        let state = self.state.0.load(Ordering::SeqCst);
        let fresh = state & OPEN != 0 && state / EPOCH != seen;
        (fresh || self.stop.load(Ordering::SeqCst)).then_some(state / EPOCH)
    }

    /// Joins the current loop if it is open.
    fn join(&self) -> bool {
        let join = |state: u64| (state & OPEN != 0).then_some(state + JOINED);
        self.state.0.fetch_update(Ordering::Acquire, Ordering::Relaxed, join).is_ok()
    }

    /// Runs unclaimed tasks until none is left, keeping the first panic.
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

/// Forgets how long `body` lives. [`Pool::run`] keeps it alive until every worker has left the loop.
fn erase_lifetime<'a>(body: &'a (dyn Fn(usize) + Sync + 'a)) -> Body {
    let body: *const (dyn Fn(usize) + Sync + 'a) = body;
    // SAFETY: only the lifetime bound of the trait object changes; whoever dereferences the pointer vouches for the lifetime.
    unsafe { std::mem::transmute::<*const (dyn Fn(usize) + Sync + 'a), Body>(body) }
}

/// Marks the thread as inside a loop until dropped.
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

/// A thread could not get the scratch memory that it needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{bytes} bytes of scratch memory could not be allocated")]
pub struct NoScratch {
    /// How much it needs.
    pub bytes: usize,
}

/// Calls `body` with `floats` elements of this thread's scratch memory, aligned to 64 bytes, with unspecified contents.
/// Nested calls get different memory.
///
/// Where there is no such memory it unwinds with [`NoScratch`], out of the loop this thread works in and on in whoever
/// started that, silently: [`catch_no_scratch`] makes an error of it. Kernels need not look for it.
pub fn with_scratch<R>(floats: usize, body: impl FnOnce(&mut [f32]) -> R) -> R {
    let kept = SCRATCH.with_borrow_mut(Vec::pop);
    // One that is too small is gone before a larger one is asked for.
    let kept = kept.filter(|buffer| buffer.len() >= floats);
    let missing = || -> AlignedBuffer<f32> {
        resume_unwind(Box::new(NoScratch { bytes: floats.saturating_mul(size_of::<f32>()) }))
    };
    let new = || AlignedBuffer::try_zeroed(floats).unwrap_or_else(missing);
    let mut buffer = kept.unwrap_or_else(new);
    let result = body(&mut buffer[..floats]);
    SCRATCH.with_borrow_mut(|scratch| scratch.push(buffer));
    result
}

/// Calls `body`, in which a thread may have no scratch memory. Panics go on.
pub fn catch_no_scratch<R>(body: impl FnOnce() -> R) -> Result<R, NoScratch> {
    catch_unwind(AssertUnwindSafe(body)).map_err(|panic| match panic.downcast::<NoScratch>() {
        Ok(missing) => *missing,
        Err(panic) => resume_unwind(panic),
    })
}

#[cfg(test)]
mod tests;
