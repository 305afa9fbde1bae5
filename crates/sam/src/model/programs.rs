//! LRU cache of compiled programs, limited by bytes.

use std::any::Any;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cutout_graph::Program;

use super::part::{Of, Part};

/// Byte limit of the cache. Packed weights are not counted: they belong to the weights and are shared by all programs.
const MAX_BYTES: usize = 64 << 20;

/// Bytes counted for the kernel calls of each program.
const MIN_BYTES: usize = 64 << 10;

/// A compiled part.
pub(super) struct Compiled<P: Part> {
    pub(super) program: Box<dyn Program>,
    /// The number of each output.
    pub(super) outputs: Of<P::Outputs, usize>,
}

/// Compiled parts by type and `Debug` form.
#[derive(Default)]
pub(super) struct Programs {
    cache: Mutex<ProgramCache>,
}

#[derive(Default)]
struct ProgramCache {
    entries: HashMap<String, Entry>,
    bytes: usize,
    /// Counter of look-ups and insertions.
    clock: u64,
}

struct Entry {
    compiled: Arc<dyn Any + Send + Sync>,
    bytes: usize,
    last_used: u64,
}

impl Programs {
    /// The program of a part: cached, or compiled by `compile`.
    pub(super) fn get<P, E>(
        &self,
        part: &P,
        compile: impl FnOnce() -> Result<Compiled<P>, E>,
    ) -> Result<Arc<Compiled<P>>, E>
    where
        P: Part + 'static,
        Of<P::Outputs, usize>: Send + Sync,
    {
        let name = format!("{} {part:?}", std::any::type_name::<P>());
        if let Some(found) = self.locked().find(&name).and_then(|found| found.downcast().ok()) {
            return Ok(found);
        }
        let compiled = Arc::new(compile()?);
        let bytes = compiled.program.held_bytes().saturating_add(MIN_BYTES);
        self.locked().keep(name, Arc::clone(&compiled) as Arc<dyn Any + Send + Sync>, bytes);
        Ok(compiled)
    }

    /// Drops all programs.
    pub(super) fn clear(&self) {
        *self.locked() = ProgramCache::default();
    }

    /// A panic while the lock is held leaves the map usable: an entry is added whole or not at all.
    fn locked(&self) -> MutexGuard<'_, ProgramCache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ProgramCache {
    fn find(&mut self, name: &str) -> Option<Arc<dyn Any + Send + Sync>> {
        self.clock += 1;
        let entry = self.entries.get_mut(name)?;
        entry.last_used = self.clock;
        Some(Arc::clone(&entry.compiled))
    }

    fn keep(&mut self, name: String, compiled: Arc<dyn Any + Send + Sync>, bytes: usize) {
        while self.bytes.saturating_add(bytes) > MAX_BYTES && self.drop_oldest() {}
        self.clock += 1;
        self.bytes += bytes;
        let entry = Entry { compiled, bytes, last_used: self.clock };
        if let Some(replaced) = self.entries.insert(name, entry) {
            self.bytes -= replaced.bytes;
        }
    }

    /// Drops the least recently used entry; false if the cache is empty.
    fn drop_oldest(&mut self) -> bool {
        let oldest = self.entries.iter().min_by_key(|(_, entry)| entry.last_used);
        let Some(name) = oldest.map(|(name, _)| name.clone()) else { return false };
        if let Some(entry) = self.entries.remove(&name) {
            self.bytes -= entry.bytes;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_used_goes_first() {
        let mut cache = ProgramCache::default();
        let program = || Arc::new(()) as Arc<dyn Any + Send + Sync>;
        for name in ["a", "b", "c"] {
            cache.keep(name.to_owned(), program(), MAX_BYTES / 3);
        }
        assert!(cache.find("a").is_some());
        cache.keep("d".to_owned(), program(), MAX_BYTES / 3);
        assert!(cache.find("b").is_none(), "b was not used for longest");
        assert!(["a", "c", "d"].iter().all(|name| cache.find(name).is_some()));
        cache.keep("whole".to_owned(), program(), 2 * MAX_BYTES);
        assert_eq!(cache.entries.len(), 1, "a program larger than the limit is kept alone");
        cache.keep("whole".to_owned(), program(), 7);
        assert_eq!(cache.bytes, 7);
    }
}
