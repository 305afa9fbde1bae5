//! The models of a server: opened on first use, dropped when idle.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use cutout_sam::Sam;

use crate::problem::Problem;

/// Opens a model, or says why it cannot.
type Open = Box<dyn Fn() -> Result<Sam, String> + Send + Sync>;

/// A model that a server can open.
pub struct ModelSource {
    /// Name in requests: letters, digits, `.`, `-` and `_`.
    pub id: String,
    /// Name for people.
    pub title: String,
    /// Whether it finds objects by phrase.
    pub finds: bool,
    /// Whether it answers points and boxes.
    pub answers_clicks: bool,
    /// Whether it follows objects through a video.
    pub tracks: bool,
    /// Opens it.
    pub open: Open,
    /// The model, if it is open already.
    pub opened: Option<Sam>,
}

impl ModelSource {
    /// The model inside the program.
    pub fn built_in(open: impl Fn() -> Result<Sam, String> + Send + Sync + 'static) -> Self {
        ModelSource {
            id: "built-in".to_owned(),
            title: "Built-in model".to_owned(),
            finds: false,
            answers_clicks: true,
            tracks: true,
            open: Box::new(open),
            opened: None,
        }
    }
}

/// The models of a server.
pub(crate) struct Models {
    entries: Vec<Entry>,
}

/// A model that may be open.
pub(crate) struct Entry {
    pub(crate) source: ModelSource,
    loaded: Mutex<Option<Loaded>>,
}

struct Loaded {
    sam: Sam,
    last_used: Instant,
}

impl Models {
    pub(crate) fn new(sources: Vec<ModelSource>) -> Self {
        let entry = |mut source: ModelSource| {
            let loaded = source.opened.take().map(|sam| Loaded { sam, last_used: Instant::now() });
            Entry { source, loaded: Mutex::new(loaded) }
        };
        Models { entries: sources.into_iter().map(entry).collect() }
    }

    /// All models, the default first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter()
    }

    /// The model of this name; the first if there is no name.
    pub(crate) fn named(&self, name: Option<&str>) -> Result<&Entry, Problem> {
        let found = match name {
            Some(name) => self.entries.iter().find(|entry| entry.source.id == name),
            None => self.entries.first(),
        };
        found.ok_or_else(|| {
            let ids: Vec<&str> = self.entries.iter().map(|entry| &*entry.source.id).collect();
            let name = name.unwrap_or_default();
            Problem::Missing(format!("no model {name:?}; there are {}", ids.join(", ")))
        })
    }

    /// Drops the models that were not used for this time; calls `dropped` with the name of each.
    pub(crate) fn drop_idle(&self, time: Duration, dropped: impl Fn(&str)) {
        for entry in &self.entries {
            let mut loaded = entry.lock();
            if loaded.as_ref().is_some_and(|loaded| loaded.last_used.elapsed() >= time) {
                *loaded = None;
                dropped(&entry.source.id);
            }
        }
    }
}

impl Entry {
    fn lock(&self) -> MutexGuard<'_, Option<Loaded>> {
        self.loaded.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The open model. Opens it first where it is not: only on the inference thread.
    pub(crate) fn open(&self) -> Result<Sam, Problem> {
        if let Some(sam) = self.opened() {
            return Ok(sam);
        }
        let sam = (self.source.open)().map_err(Problem::Internal)?;
        *self.lock() = Some(Loaded { sam: sam.clone(), last_used: Instant::now() });
        Ok(sam)
    }

    /// The model if it is open. This counts as a use.
    fn opened(&self) -> Option<Sam> {
        let mut loaded = self.lock();
        let loaded = loaded.as_mut()?;
        loaded.last_used = Instant::now();
        Some(loaded.sam.clone())
    }

    /// A look at the open model that does not count as a use.
    pub(crate) fn peek<T>(&self, look: impl FnOnce(&Sam) -> T) -> Option<T> {
        self.lock().as_ref().map(|loaded| look(&loaded.sam))
    }
}
