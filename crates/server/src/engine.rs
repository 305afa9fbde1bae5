//! The inference thread: a bounded queue of short and long jobs.
//!
//! Short jobs (embed a picture, answer a prompt) run first. Long jobs call [`Turn::give_way`] at every step, which runs the
//! short jobs that wait. A job whose client is gone, or whose client has asked something newer, is dropped.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use crate::problem::Problem;

/// How often the idle thread calls its `idle` function.
const IDLE_STEP: Duration = Duration::from_secs(5);

const STOPPING: Problem = Problem::Busy("the server is stopping");

/// Which jobs run first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lane {
    /// Well below a second.
    Short,
    /// Seconds and more.
    Long,
}

/// A request of a series of which only the newest matters: a preview under the pointer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Preview {
    /// Who asks.
    pub(crate) client: String,
    /// Grows with each request of the client.
    pub(crate) sequence: u64,
}

/// The inference thread and its queue.
pub(crate) struct Engine {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct Shared {
    queue: Mutex<Queue>,
    wake: Condvar,
    /// Most jobs that wait.
    most: usize,
    dropped: AtomicU64,
    refused: AtomicU64,
    left: AtomicU64,
}

#[derive(Default)]
struct Queue {
    short: VecDeque<Job>,
    long: VecDeque<Job>,
    is_closed: bool,
}

type Work = Box<dyn FnOnce(&Turn) + Send>;

struct Job {
    work: Work,
    turn: Turn,
    preview: Option<Preview>,
}

/// What a running job knows.
pub(crate) struct Turn {
    shared: Arc<Shared>,
    is_gone: Arc<AtomicBool>,
    deadline: Instant,
    time: Duration,
}

/// Marks a job as unwanted when the request that waits for it ends: it is answered, its time is up, or it is dropped because its client
/// left.
struct Waiting {
    shared: Arc<Shared>,
    is_gone: Arc<AtomicBool>,
    has_left: bool,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.is_gone.store(true, Ordering::Relaxed);
        self.shared.left.fetch_add(u64::from(self.has_left), Ordering::Relaxed);
    }
}

/// How a job is run.
pub(crate) struct Ticket {
    /// Which jobs run first.
    pub(crate) lane: Lane,
    /// Set for a preview under the pointer.
    pub(crate) preview: Option<Preview>,
    /// Time until the answer.
    pub(crate) time: Duration,
}

impl Engine {
    /// Starts the thread. `idle` is called every few seconds while there is nothing to do.
    #[expect(
        clippy::disallowed_methods,
        reason = "the one inference thread; its kernels run on the pool"
    )]
    pub(crate) fn start(most: usize, idle: impl Fn() + Send + 'static) -> std::io::Result<Self> {
        let shared = Arc::new(Shared {
            queue: Mutex::default(),
            wake: Condvar::new(),
            most,
            dropped: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            left: AtomicU64::new(0),
        });
        let own = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("inference".to_owned())
            .spawn(move || own.work_until_closed(&idle))?;
        Ok(Engine { shared, thread: Mutex::new(Some(thread)) })
    }

    /// Runs `work` on the inference thread. An error at once if too many jobs wait.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        ticket: Ticket,
        work: impl FnOnce(&Turn) -> Result<T, Problem> + Send + 'static,
    ) -> Result<T, Problem> {
        let Ticket { lane, preview, time } = ticket;
        let is_preview = preview.is_some();
        let is_gone = Arc::new(AtomicBool::new(false));
        let (sender, answer) = oneshot::channel();
        let work: Work = Box::new(move |turn| {
            // The receiver is gone if the client is.
            let _ignored = sender.send(turn.check().and_then(|()| work(turn)));
        });
        let deadline = Instant::now() + time;
        let turn = Turn { shared: Arc::clone(&self.shared), is_gone, deadline, time };
        let (shared, gone) = (Arc::clone(&self.shared), Arc::clone(&turn.is_gone));
        self.shared.push(lane, Job { work, turn, preview })?;
        let mut waiting = Waiting { shared, is_gone: gone, has_left: true };
        let answer = tokio::time::timeout(time, answer).await;
        waiting.has_left = false;
        drop(waiting);
        match answer {
            Ok(Ok(answer)) => answer,
            // The job was dropped from the queue, or it panicked.
            Ok(Err(_)) if is_preview => Err(Problem::Stale),
            Ok(Err(_)) if self.shared.lock().is_closed => Err(STOPPING),
            Ok(Err(_)) => Err(Problem::Internal("this request made the server fail".to_owned())),
            Err(_) => Err(Problem::TimedOut(time.as_secs())),
        }
    }

    /// Jobs that wait, without those whose clients left.
    pub(crate) fn waiting(&self) -> usize {
        let mut queue = self.shared.lock();
        queue.drop_unwanted();
        queue.len()
    }

    /// Jobs whose clients left before the answer.
    pub(crate) fn left(&self) -> u64 {
        self.shared.left.load(Ordering::Relaxed)
    }

    /// Previews that were dropped for newer ones.
    pub(crate) fn dropped(&self) -> u64 {
        self.shared.dropped.load(Ordering::Relaxed)
    }

    /// Jobs that were refused because too many waited.
    pub(crate) fn refused(&self) -> u64 {
        self.shared.refused.load(Ordering::Relaxed)
    }

    /// Lets the thread end after the job that is running. Jobs that wait are dropped.
    pub(crate) fn close(&self) {
        let mut queue = self.shared.lock();
        queue.is_closed = true;
        queue.short.clear();
        queue.long.clear();
        drop(queue);
        self.shared.wake.notify_all();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            // A panic of the thread has been reported by its own message.
            let _ignored = thread.join();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, lane: Lane, job: Job) -> Result<(), Problem> {
        let mut queue = self.lock();
        if queue.is_closed {
            return Err(STOPPING);
        }
        if let Some(preview) = &job.preview {
            let before = queue.len();
            queue.short.retain(|other| !other.is_replaced_by(preview));
            self.dropped.fetch_add((before - queue.len()) as u64, Ordering::Relaxed);
        }
        queue.drop_unwanted();
        if queue.len() >= self.most {
            self.refused.fetch_add(1, Ordering::Relaxed);
            return Err(Problem::Busy("too many requests wait for the model"));
        }
        match lane {
            Lane::Short => queue.short.push_back(job),
            Lane::Long => queue.long.push_back(job),
        }
        drop(queue);
        self.wake.notify_one();
        Ok(())
    }

    fn work_until_closed(&self, idle: &dyn Fn()) {
        let mut queue = self.lock();
        while !queue.is_closed {
            if let Some(job) = queue.next() {
                drop(queue);
                job.run();
                queue = self.lock();
                continue;
            }
            let (lock, timeout) =
                self.wake.wait_timeout(queue, IDLE_STEP).unwrap_or_else(PoisonError::into_inner);
            queue = lock;
            if timeout.timed_out() {
                drop(queue);
                idle();
                queue = self.lock();
            }
        }
    }
}

impl Queue {
    fn len(&self) -> usize {
        self.short.len() + self.long.len()
    }

    fn next(&mut self) -> Option<Job> {
        self.short.pop_front().or_else(|| self.long.pop_front())
    }

    /// Drops the jobs whose clients are gone.
    fn drop_unwanted(&mut self) {
        self.short.retain(|job| !job.turn.is_gone());
        self.long.retain(|job| !job.turn.is_gone());
    }
}

impl Job {
    fn is_replaced_by(&self, newer: &Preview) -> bool {
        let replaces = |own: &Preview| own.client == newer.client && own.sequence < newer.sequence;
        self.preview.as_ref().is_some_and(replaces)
    }

    fn run(self) {
        if self.turn.is_gone() {
            return;
        }
        let Job { work, turn, .. } = self;
        // A panic is a defect of one request; the others are answered.
        let _reported_by_the_panic_hook = catch_unwind(AssertUnwindSafe(|| work(&turn)));
    }
}

impl Turn {
    /// Whether nobody waits for the answer any more.
    pub(crate) fn is_gone(&self) -> bool {
        self.is_gone.load(Ordering::Relaxed)
    }

    /// An error if nobody waits any more or the time is up.
    pub(crate) fn check(&self) -> Result<(), Problem> {
        if self.is_gone() {
            return Err(Problem::Gone);
        }
        if Instant::now() > self.deadline {
            return Err(Problem::TimedOut(self.time.as_secs()));
        }
        Ok(())
    }

    /// Runs the short jobs that wait now, then checks like [`Turn::check`]. For long jobs, between their steps.
    pub(crate) fn give_way(&self) -> Result<(), Problem> {
        let waiting = self.shared.lock().short.len();
        for _ in 0..waiting {
            let job = self.shared.lock().short.pop_front();
            let Some(job) = job else { break };
            job.run();
        }
        self.check()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    fn block_on<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .expect("a runtime")
            .block_on(future)
    }

    fn ticket(lane: Lane) -> Ticket {
        Ticket { lane, preview: None, time: Duration::from_secs(20) }
    }

    fn preview(sequence: u64) -> Ticket {
        let preview = Some(Preview { client: "a".to_owned(), sequence });
        Ticket { preview, ..ticket(Lane::Short) }
    }

    /// Occupies the thread until the sender is used.
    fn occupied(engine: &Arc<Engine>) -> mpsc::Sender<()> {
        let (release, wait) = mpsc::channel::<()>();
        let (started, has_started) = mpsc::channel();
        let work: Work = Box::new(move |_| {
            let _ignored = started.send(());
            let _ignored = wait.recv();
        });
        let turn = Turn {
            shared: Arc::clone(&engine.shared),
            is_gone: Arc::default(),
            deadline: Instant::now() + Duration::from_secs(20),
            time: Duration::from_secs(20),
        };
        engine.shared.push(Lane::Short, Job { work, turn, preview: None }).unwrap();
        has_started.recv().unwrap();
        release
    }

    #[test]
    fn a_full_queue_refuses_and_newer_previews_replace_older_ones() {
        let engine = Arc::new(Engine::start(2, || ()).unwrap());
        let release = occupied(&engine);
        block_on(async {
            let answer = |number: u64| move |_: &Turn| Ok(number);
            let old = engine.run(preview(1), answer(1));
            let new = engine.run(preview(2), answer(2));
            let click = engine.run(ticket(Lane::Short), answer(3));
            let refused = engine.run(ticket(Lane::Short), answer(4));
            let last = async {
                let refused = refused.await;
                release.send(()).unwrap();
                refused
            };
            let (old, new, click, refused) = join4(old, new, click, last).await;
            assert!(matches!(old, Err(Problem::Stale)), "{old:?}");
            assert_eq!(new.unwrap(), 2);
            assert_eq!(click.unwrap(), 3);
            assert!(matches!(refused, Err(Problem::Busy(_))), "{refused:?}");
        });
        assert_eq!((engine.dropped(), engine.refused()), (1, 1));
        engine.close();
    }

    #[test]
    fn a_request_that_is_dropped_is_not_run_and_long_jobs_give_way() {
        let engine = Arc::new(Engine::start(8, || ()).unwrap());
        let release = occupied(&engine);
        let (order, ran) = mpsc::channel();
        block_on(async {
            let note = |name: &'static str| {
                let order = order.clone();
                move |_: &Turn| {
                    order.send(name).unwrap();
                    Ok(())
                }
            };
            let gone = engine.run(ticket(Lane::Short), note("gone"));
            assert!(tokio::time::timeout(Duration::from_millis(20), gone).await.is_err());
            let (begun, has_begun) = mpsc::channel::<()>();
            let (go_on, may_go_on) = mpsc::channel::<()>();
            let own = order.clone();
            let long = engine.run(ticket(Lane::Long), move |turn| {
                begun.send(()).unwrap();
                may_go_on.recv().unwrap();
                turn.give_way()?;
                own.send("long").unwrap();
                Ok(())
            });
            let short = engine.run(ticket(Lane::Short), note("short"));
            let shorts = async {
                release.send(()).unwrap();
                // The short job was queued before the thread was free, so it runs first; another waits for the long one.
                while has_begun.try_recv().is_err() {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                let second = engine.run(ticket(Lane::Short), note("second"));
                let free = async { go_on.send(()).unwrap() };
                let (second, ()) = join2(second, free).await;
                second
            };
            let (long, short, second) = join3(long, short, shorts).await;
            long.and(short).and(second).unwrap();
        });
        engine.close();
        drop(order);
        assert_eq!(ran.iter().collect::<Vec<_>>(), ["short", "second", "long"]);
    }

    #[test]
    fn a_job_that_panics_or_is_late_is_an_error_of_its_own() {
        let engine = Engine::start(8, || ()).unwrap();
        block_on(async {
            let late = Ticket { time: Duration::from_millis(1), ..ticket(Lane::Short) };
            let late = engine
                .run(late, |_| {
                    std::thread::sleep(Duration::from_millis(30));
                    Ok(())
                })
                .await;
            assert!(matches!(late, Err(Problem::TimedOut(_))), "{late:?}");
            let panics = engine.run(ticket(Lane::Short), |_| -> Result<(), Problem> {
                panic!("on purpose: the test of a job that panics")
            });
            let failed = panics.await;
            assert!(matches!(failed, Err(Problem::Internal(_))), "{failed:?}");
            assert!(engine.run(ticket(Lane::Short), |_| Ok(5)).await.is_ok());
        });
        engine.close();
    }

    async fn join2<A, B>(a: impl Future<Output = A>, b: impl Future<Output = B>) -> (A, B) {
        let (mut a, mut b) = (std::pin::pin!(a), std::pin::pin!(b));
        let (mut first, mut second) = (None, None);
        std::future::poll_fn(move |context| {
            if first.is_none()
                && let std::task::Poll::Ready(value) = a.as_mut().poll(context)
            {
                first = Some(value);
            }
            if second.is_none()
                && let std::task::Poll::Ready(value) = b.as_mut().poll(context)
            {
                second = Some(value);
            }
            if first.is_some() && second.is_some() {
                return std::task::Poll::Ready((first.take().unwrap(), second.take().unwrap()));
            }
            std::task::Poll::Pending
        })
        .await
    }

    async fn join3<A, B, C>(
        a: impl Future<Output = A>,
        b: impl Future<Output = B>,
        c: impl Future<Output = C>,
    ) -> (A, B, C) {
        let (a, (b, c)) = join2(a, join2(b, c)).await;
        (a, b, c)
    }

    async fn join4<A, B, C, D>(
        a: impl Future<Output = A>,
        b: impl Future<Output = B>,
        c: impl Future<Output = C>,
        d: impl Future<Output = D>,
    ) -> (A, B, C, D) {
        let (a, (b, (c, d))) = join2(a, join2(b, join2(c, d))).await;
        (a, b, c, d)
    }
}
