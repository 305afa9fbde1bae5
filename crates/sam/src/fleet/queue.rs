//! The queue of a fleet: items are read ahead, taken by devices, and delivered in their order.

use std::collections::{BTreeMap, VecDeque};
use std::ops::ControlFlow;
use std::panic::resume_unwind;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

use super::{Fault, Faulty, FleetAnswer, FleetError, FleetEvent};

/// Items for each device that were begun and are not delivered: a device waits when the others are so far behind.
const BEGUN: usize = 4;
/// Read items for each device that wait for one.
const AHEAD: usize = 2;
/// Most threads that read.
const MOST_READERS: usize = 16;

/// What there is to do.
pub(super) struct Work<'a, P, A, E> {
    /// Number of items.
    pub(super) items: usize,
    /// Names of the devices.
    pub(super) devices: &'a [String],
    /// Reads an item.
    pub(super) read: &'a (dyn Fn(usize) -> Result<P, E> + Sync),
    /// Answers an item on a device: number of the device, number of the item, what was read.
    pub(super) answer: &'a (dyn Fn(usize, usize, &P) -> Result<A, E> + Sync),
}

/// Runs all items. See [`Fleet::run`](super::Fleet::run).
#[expect(
    clippy::disallowed_methods,
    reason = "a thread for each device, which waits for it, and threads that read files beside them"
)]
pub(super) fn run<P, A, E>(
    work: &Work<'_, P, A, E>,
    deliver: &mut dyn FnMut(FleetEvent<P, A, E>) -> ControlFlow<()>,
) -> Result<(), FleetError>
where
    P: Send + Sync,
    A: Send,
    E: Faulty + Send,
{
    let queue =
        Queue { work, state: Mutex::new(State::new(work.devices.len())), changed: Condvar::new() };
    thread::scope(|scope| {
        let mut threads = Vec::new();
        let closing = Closing(&queue);
        let outcome = queue.start(scope, &mut threads).and_then(|()| queue.deliver(deliver));
        drop(closing);
        for thread in threads {
            thread.join().unwrap_or_else(|panic| resume_unwind(panic));
        }
        outcome
    })
}

struct Queue<'w, P, A, E> {
    work: &'w Work<'w, P, A, E>,
    state: Mutex<State<P, A, E>>,
    /// Notified after every change of the state.
    changed: Condvar,
}

struct State<P, A, E> {
    /// The next item to read.
    unread: usize,
    /// Items that are being read.
    reading: usize,
    /// Items that wait for a device. The first of them is taken first, so that what failed on a device does not wait long.
    ready: BTreeMap<usize, Task<P, E>>,
    /// Items that wait until those before them are delivered.
    answered: BTreeMap<usize, FleetAnswer<P, A, E>>,
    /// Number of items delivered.
    delivered: usize,
    /// For each device why it has left, if it has.
    lost: Vec<Option<String>>,
    /// Devices that have left, which the caller does not know yet.
    news: VecDeque<usize>,
    is_closed: bool,
}

/// An item that was read.
struct Task<P, E> {
    picture: P,
    /// The device that could not answer it, and its error.
    tried: Option<(usize, E)>,
}

/// Closes the queue when it is dropped: threads end after what they are doing.
struct Closing<'q, 'w, P, A, E>(&'q Queue<'w, P, A, E>);

impl<P, A, E> Drop for Closing<'_, '_, P, A, E> {
    fn drop(&mut self) {
        self.0.lock().is_closed = true;
        self.0.changed.notify_all();
    }
}

/// Closes the queue if the thread that holds it panics: the others would wait for its item.
struct CloseOnPanic<'q, 'w, P, A, E>(&'q Queue<'w, P, A, E>);

impl<P, A, E> Drop for CloseOnPanic<'_, '_, P, A, E> {
    fn drop(&mut self) {
        if thread::panicking() {
            drop(Closing(self.0));
        }
    }
}

impl<P, A, E> Queue<'_, P, A, E> {
    /// A panic while the lock is held is a defect of this file; the state is used only to end the other threads then.
    fn lock(&self) -> MutexGuard<'_, State<P, A, E>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until `found` finds something in the state.
    fn wait_for<T>(&self, mut found: impl FnMut(&mut State<P, A, E>) -> Option<T>) -> T {
        let mut state = self.lock();
        loop {
            if let Some(found) = found(&mut state) {
                drop(state);
                self.changed.notify_all();
                return found;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Changes the state.
    fn change(&self, change: impl FnOnce(&mut State<P, A, E>)) {
        change(&mut self.lock());
        self.changed.notify_all();
    }
}

impl<P: Send + Sync, A: Send, E: Faulty + Send> Queue<'_, P, A, E> {
    /// Starts the threads.
    fn start<'s>(
        &'s self,
        scope: &'s Scope<'s, '_>,
        threads: &mut Vec<ScopedJoinHandle<'s, ()>>,
    ) -> Result<(), FleetError> {
        let failed = |error: std::io::Error| FleetError::Thread(error.to_string());
        let devices = self.work.devices.len();
        for device in 0..devices {
            let named = thread::Builder::new().name(format!("device-{device}"));
            threads.push(
                named.spawn_scoped(scope, move || self.answer_items(device)).map_err(failed)?,
            );
        }
        for _ in 0..devices.min(MOST_READERS) {
            let named = thread::Builder::new().name("reading".to_owned());
            threads.push(named.spawn_scoped(scope, || self.read_items()).map_err(failed)?);
        }
        Ok(())
    }

    /// The thread of a reader.
    fn read_items(&self) {
        let _panic = CloseOnPanic(self);
        let next = || {
            self.wait_for(|state| {
                if state.is_closed || state.unread == self.work.items {
                    return Some(None);
                }
                let devices = state.lost.len();
                let has_room = state.unread - state.delivered < BEGUN * devices
                    && state.ready.len() + state.reading < AHEAD * devices;
                has_room.then(|| {
                    state.unread += 1;
                    state.reading += 1;
                    Some(state.unread - 1)
                })
            })
        };
        while let Some(index) = next() {
            let read = (self.work.read)(index);
            self.change(|state| {
                state.reading -= 1;
                match read {
                    Ok(picture) => drop(state.ready.insert(index, Task { picture, tried: None })),
                    Err(error) => state.answer(index, None, Err(error), Duration::ZERO),
                }
            });
        }
    }

    /// The thread of a device.
    fn answer_items(&self, device: usize) {
        let _panic = CloseOnPanic(self);
        let mut start = Instant::now();
        while let Some((index, task)) = self.wait_for(|state| state.next_for(device)) {
            let waited = start.elapsed();
            let answer = (self.work.answer)(device, index, &task.picture);
            start = Instant::now();
            self.change(|state| state.finish(device, index, task, (answer, waited)));
        }
    }

    /// Delivers on the calling thread until all items are delivered, no device is left, or the caller stops.
    fn deliver(
        &self,
        deliver: &mut dyn FnMut(FleetEvent<P, A, E>) -> ControlFlow<()>,
    ) -> Result<(), FleetError> {
        loop {
            let event = self.wait_for(|state| state.next_event(self.work));
            let flow = match event {
                Next::Event(event) => deliver(event),
                Next::End(outcome) => return outcome,
            };
            if flow.is_break() {
                return Err(FleetError::Stopped);
            }
        }
    }
}

/// What the caller's thread does next.
enum Next<P, A, E> {
    Event(FleetEvent<P, A, E>),
    End(Result<(), FleetError>),
}

impl<P, A, E> State<P, A, E> {
    fn new(devices: usize) -> Self {
        State {
            unread: 0,
            reading: 0,
            ready: BTreeMap::new(),
            answered: BTreeMap::new(),
            delivered: 0,
            lost: vec![None; devices],
            news: VecDeque::new(),
            is_closed: false,
        }
    }

    /// The next item for a device; `Some(None)` if there will be none.
    #[expect(clippy::option_option, reason = "to wait, to end, to work")]
    fn next_for(&mut self, device: usize) -> Option<Option<(usize, Task<P, E>)>> {
        if self.is_closed || self.lost[device].is_some() {
            return Some(None);
        }
        let is_new =
            |task: &Task<P, E>| task.tried.as_ref().is_none_or(|(tried, _)| *tried != device);
        let index = self.ready.iter().find(|(_, task)| is_new(task)).map(|(index, _)| *index)?;
        Some(self.ready.remove(&index).map(|task| (index, task)))
    }

    fn answer(&mut self, index: usize, picture: Option<P>, answer: Result<A, E>, waited: Duration) {
        self.answered.insert(index, FleetAnswer { index, picture, answer, waited });
    }

    /// Whether a device other than this one is at work.
    fn has_other(&self, device: usize) -> bool {
        self.lost.iter().enumerate().any(|(other, lost)| other != device && lost.is_none())
    }
}

impl<P, A, E: Faulty> State<P, A, E> {
    /// Takes the outcome of a device's work on an item.
    fn finish(
        &mut self,
        device: usize,
        index: usize,
        task: Task<P, E>,
        (answer, waited): (Result<A, E>, Duration),
    ) {
        let Task { picture, tried } = task;
        let fault = answer.as_ref().map_or_else(Faulty::fault, |_| Fault::Item);
        if fault == Fault::Device
            && let Err(error) = &answer
        {
            self.lose(device, error.to_string());
        }
        match (answer, tried) {
            (Err(error), None) if fault != Fault::Item && self.has_other(device) => {
                self.ready.insert(index, Task { picture, tried: Some((device, error)) });
            }
            // The run ends with this error.
            (Err(_), _) if fault == Fault::Device && !self.has_other(device) => {}
            (answer, tried) => {
                // The other device has no memory for what this one could answer.
                if let (Ok(_), Some((other, error))) = (&answer, tried)
                    && error.fault() == Fault::Memory
                {
                    self.lose(other, error.to_string());
                }
                self.answer(index, Some(picture), answer, waited);
            }
        }
        self.settle();
    }

    /// Takes a device out of the queue.
    fn lose(&mut self, device: usize, reason: String) {
        if self.lost[device].is_none() {
            self.lost[device] = Some(reason);
            self.news.push_back(device);
        }
    }

    /// Items that only the device is left for that failed at them have its error as their answer.
    fn settle(&mut self) {
        let of_last =
            |(tried, _): &(usize, E)| self.lost[*tried].is_none() && !self.has_other(*tried);
        let stuck = self.ready.iter().filter(|(_, task)| task.tried.as_ref().is_some_and(of_last));
        let stuck: Vec<usize> = stuck.map(|(index, _)| *index).collect();
        for index in stuck {
            if let Some(Task { picture, tried: Some((_, error)) }) = self.ready.remove(&index) {
                self.answer(index, Some(picture), Err(error), Duration::ZERO);
            }
        }
    }

    /// What the caller is told next, if there is something.
    fn next_event(&mut self, work: &Work<'_, P, A, E>) -> Option<Next<P, A, E>> {
        if let Some(number) = self.news.pop_front() {
            let (device, reason) = (work.devices[number].clone(), self.lost[number].clone());
            let reason = reason.unwrap_or_default();
            return Some(Next::Event(FleetEvent::Lost { device, number, reason }));
        }
        if let Some(answer) = self.answered.remove(&self.delivered) {
            self.delivered += 1;
            return Some(Next::Event(FleetEvent::Done(answer)));
        }
        if self.delivered == work.items {
            return Some(Next::End(Ok(())));
        }
        // A thread panicked: the panic goes on when the threads are joined.
        if self.is_closed {
            return Some(Next::End(Err(FleetError::Stopped)));
        }
        let reasons: Option<Vec<String>> = self.lost.iter().cloned().collect();
        reasons.map(|reasons| Next::End(Err(FleetError::NoDeviceLeft(reasons))))
    }
}

#[cfg(test)]
mod tests;
