//! Copies between host and card, through host memory that the driver has locked: the card reads and writes it by itself, so that copies to
//! the card need not be waited for, and run at the speed of the bus.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Mutex;

use cudarc::driver::result;

use super::kernels::{Event, Mark};
use super::{Context, DeviceError, called, locked};

/// Bytes of the ring that the card reads from: a picture of 8 megapixels and more.
const RING_BYTES: usize = 32 << 20;

/// Most bytes of one copy, so that the host fills the next piece meanwhile; and of the memory that the card writes to.
const PIECE_BYTES: usize = 4 << 20;

/// Pieces of the ring start at multiples of this.
const ALIGNMENT: usize = 64;

/// What copies go through.
#[derive(Default)]
pub(super) struct Staging {
    ring: Mutex<Ring>,
    landing: Mutex<Locked>,
}

/// Locked host memory, made on first use.
#[derive(Default)]
enum Locked {
    #[default]
    Unmade,
    Made(Pinned),
    /// The system locks no more memory: copies are waited for.
    Refused,
}

/// Host memory that the driver gave.
struct Pinned {
    start: *mut u8,
    bytes: usize,
}

// SAFETY: memory of the process, which any thread may use.
unsafe impl Send for Pinned {}

/// Locked memory as a ring.
#[derive(Default)]
struct Ring {
    memory: Locked,
    places: Places<Event>,
}

/// Which part of a ring is used: pieces in the order in which they were taken, each with what tells that it is free again.
struct Places<T> {
    next: usize,
    taken: VecDeque<(Range<usize>, T)>,
}

impl<T> Default for Places<T> {
    fn default() -> Self {
        Places { next: 0, taken: VecDeque::new() }
    }
}

impl<T> Places<T> {
    /// Where the next `bytes` of a ring of `length` bytes lie. The pieces there are handed to `wait`, oldest first, and are free then.
    fn take<E>(
        &mut self,
        bytes: usize,
        length: usize,
        wait: impl Fn(&T) -> Result<(), E>,
    ) -> Result<Range<usize>, E> {
        if self.next + bytes > length {
            // The rest of this round stays unused; what lies there is older than everything at the start.
            while self.taken.front().is_some_and(|(place, _)| place.start >= self.next) {
                self.free(&wait)?;
            }
            self.next = 0;
        }
        let place = self.next..self.next + bytes;
        let overlaps =
            |(taken, _): &(Range<usize>, T)| taken.start < place.end && place.start < taken.end;
        while self.taken.front().is_some_and(overlaps) {
            self.free(&wait)?;
        }
        self.next = place.end.next_multiple_of(ALIGNMENT);
        Ok(place)
    }

    fn free<E>(&mut self, wait: impl Fn(&T) -> Result<(), E>) -> Result<(), E> {
        let Some((_, until)) = self.taken.front() else { return Ok(()) };
        wait(until)?;
        self.taken.pop_front();
        Ok(())
    }

    /// Frees what has passed without waiting.
    fn sweep(&mut self, passed: impl Fn(&T) -> bool) {
        while self.taken.front().is_some_and(|(_, until)| passed(until)) {
            self.taken.pop_front();
        }
    }
}

impl Pinned {
    /// Memory in the current context.
    fn new(bytes: usize) -> Option<Pinned> {
        // SAFETY: the memory is freed once, in `drop`.
        let start = unsafe { result::malloc_host(bytes, 0) }.ok()?;
        let start = start.cast::<u8>();
        // SAFETY: just made, of so many bytes. Zeros make it initialised.
        unsafe { start.write_bytes(0, bytes) };
        Some(Pinned { start, bytes })
    }

    fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: made of so many initialised bytes, and borrowed for as long as the slice. The card touches only parts that are
        // waited for before they are used again.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.bytes) }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // SAFETY: made by `malloc_host`; the card is done with it, because its streams were synchronised.
        let _ = unsafe { result::free_host(self.start.cast()) };
    }
}

impl Locked {
    /// The memory, of `bytes` bytes; `None` if the system refuses it.
    fn memory(&mut self, bytes: usize) -> Option<&mut Pinned> {
        if matches!(self, Locked::Unmade) {
            *self = Pinned::new(bytes).map_or(Locked::Refused, Locked::Made);
        }
        match self {
            Locked::Made(memory) => Some(memory),
            Locked::Unmade | Locked::Refused => None,
        }
    }
}

impl Staging {
    /// Gives the locked memory back. The card must be done with it.
    pub(super) fn release(&self) {
        *locked(&self.ring) = Ring::default();
        *locked(&self.landing) = Locked::default();
    }
}

impl Context {
    /// Enqueues a copy of host bytes to the device. They are copied out of `bytes` before this returns.
    pub(crate) fn copy_in(&self, address: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        self.enter()?;
        let ring = &mut *locked(&self.staging.ring);
        let Some(memory) = ring.memory.memory(RING_BYTES) else {
            return self.copy_in_and_wait(address, bytes);
        };
        for (index, piece) in bytes.chunks(PIECE_BYTES).enumerate() {
            ring.places.sweep(Event::has_passed);
            let place = ring.places.take(piece.len(), RING_BYTES, Event::wait)?;
            let staged = &mut memory.bytes()[place.clone()];
            staged.copy_from_slice(piece);
            let to = address + (index * PIECE_BYTES) as u64;
            // SAFETY: callers pass ranges of memory that they hold; the staged bytes are not touched before the event has passed.
            called("copying to the card", unsafe {
                result::memcpy_htod_async(to, staged, self.stream)
            })?;
            ring.places.taken.push_back((place, self.event()?));
        }
        Ok(())
    }

    fn copy_in_and_wait(&self, address: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        if bytes.is_empty() {
            return Ok(());
        }
        // SAFETY: callers pass ranges of memory that they hold; `bytes` lives until the stream is synchronised below.
        called("copying to the card", unsafe {
            result::memcpy_htod_async(address, bytes, self.stream)
        })?;
        self.synchronize()
    }

    /// Copies ranges of device memory to the host as soon as `ready` has passed, beside whatever runs then; without it when everything is
    /// done that was enqueued before.
    pub(crate) fn copy_out(
        &self,
        ready: Option<&Mark>,
        ranges: &mut [(u64, &mut [u8])],
    ) -> Result<(), DeviceError> {
        self.enter()?;
        match ready {
            Some(mark) => mark.wait()?,
            None => self.synchronize()?,
        }
        let mut landing = locked(&self.staging.landing);
        let memory = landing.memory(PIECE_BYTES);
        let mut arriving = Arriving { context: self, memory, parts: Vec::new(), used: 0 };
        for (address, bytes) in ranges {
            for (index, part) in bytes.chunks_mut(PIECE_BYTES).enumerate() {
                arriving.enqueue(*address + (index * PIECE_BYTES) as u64, part)?;
            }
        }
        arriving.finish()
    }
}

/// Copies to the host that are on their way.
struct Arriving<'a, 'm> {
    context: &'a Context,
    /// Where the card writes; `None`: it writes to the parts themselves.
    memory: Option<&'m mut Pinned>,
    /// Parts that are not copied out of the memory yet, and where they lie there.
    parts: Vec<(usize, &'a mut [u8])>,
    used: usize,
}

impl<'a> Arriving<'a, '_> {
    fn enqueue(&mut self, address: u64, part: &'a mut [u8]) -> Result<(), DeviceError> {
        if self.used + part.len() > PIECE_BYTES {
            self.finish()?;
        }
        let stream = self.context.fetches;
        let place = self.used;
        let answer = match &mut self.memory {
            Some(memory) => {
                let to = &mut memory.bytes()[place..place + part.len()];
                // SAFETY: callers of `copy_out` pass ranges of memory that they hold; the locked memory is waited for in `finish`.
                unsafe { result::memcpy_dtoh_async(to, address, stream) }
            }
            // SAFETY: as above; the part is borrowed until `finish`.
            None => unsafe { result::memcpy_dtoh_async(part, address, stream) },
        };
        called("copying from the card", answer)?;
        self.used = (place + part.len()).next_multiple_of(ALIGNMENT);
        self.parts.push((place, part));
        Ok(())
    }

    /// Waits for the copies, and hands out what arrived.
    fn finish(&mut self) -> Result<(), DeviceError> {
        // SAFETY: the stream is the context's.
        let answer = unsafe { result::stream::synchronize(self.context.fetches) };
        called("copying from the card", answer)?;
        for (place, part) in self.parts.drain(..) {
            if let Some(memory) = &mut self.memory {
                part.copy_from_slice(&memory.bytes()[place..place + part.len()]);
            }
        }
        self.used = 0;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pieces of many sizes: each lies where no piece is that was not waited for.
    #[test]
    fn a_ring_waits_for_what_it_overwrites() {
        let (length, waited) = (1000, std::cell::RefCell::new(Vec::new()));
        let mut places = Places::default();
        let mut in_use: VecDeque<(Range<usize>, usize)> = VecDeque::new();
        for number in 0..500 {
            let bytes = 1 + number * 37 % 300;
            let wait = |which: &usize| -> Result<(), ()> {
                waited.borrow_mut().push(*which);
                Ok(())
            };
            let place = places.take(bytes, length, wait).unwrap();
            assert_eq!(place.len(), bytes);
            assert!(place.end <= length);
            for which in waited.borrow_mut().drain(..) {
                assert_eq!(in_use.pop_front().map(|(_, number)| number), Some(which));
            }
            for (other, _) in &in_use {
                assert!(
                    other.end <= place.start || place.end <= other.start,
                    "{other:?} {place:?}"
                );
            }
            places.taken.push_back((place.clone(), number));
            in_use.push_back((place, number));
            if number % 7 == 0 {
                let passed = number - 2.min(number);
                places.sweep(|which| *which < passed);
                in_use.retain(|(_, which)| *which >= passed);
            }
        }
        assert!(in_use.len() < 20);
    }
}
