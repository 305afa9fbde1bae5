//! A run over all items of a shard.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use cutout_imaging::{DecodeLimits, Image};
use cutout_sam::Sam;

use crate::input::{Bytes, Item, Source};
use crate::parts::{self, Mark, PartError, State, part_name, sha256};
use crate::rows::{self, Common, Row};
use crate::shard::Shard;
use crate::task::{Task, TaskError, add_outlines};

/// Decoded pictures that wait for the model.
const WAITING: usize = 2;

/// A run.
pub struct Batch {
    /// The model.
    pub sam: Sam,
    /// SHA-256 of its file.
    pub model_sha256: String,
    /// What is asked of every picture.
    pub task: Task,
    /// Outlines are written too, which leave the border of the pixels by at most this many pixels.
    pub outlines: Option<f64>,
    /// The share of the items that is done here.
    pub shard: Shard,
    /// Folder of the parts.
    pub output: PathBuf,
    /// Pictures of a part.
    pub pictures_per_part: usize,
    /// Whether finished parts of the same run are kept.
    pub resume: bool,
    /// Pictures that may fail before the run stops; `None` for any number.
    pub max_errors: Option<usize>,
}

/// Progress of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// A picture is done, or was done before.
    Picture {
        /// Pictures done.
        done: usize,
        /// Pictures of the shard.
        all: usize,
    },
    /// A picture failed, which one and why; its row says so.
    Failed(&'a str),
}

/// What a run did.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Summary {
    /// Pictures of the shard.
    pub pictures: usize,
    /// Pictures of parts that were finished before.
    pub kept: usize,
    /// Pictures that failed.
    pub errors: usize,
    /// Rows.
    pub rows: usize,
    /// Where the time went.
    pub stages: Stages,
}

/// Time of each stage. The first and the last run beside the model: they cost only what the model waits for them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Stages {
    /// Reading and decoding.
    pub decode: Duration,
    /// The model.
    pub model: Duration,
    /// Encoding and writing parts.
    pub write: Duration,
    /// The model's thread waiting for a picture or for a part to be written.
    pub waiting: Duration,
}

/// Why a run stops.
#[derive(Debug, thiserror::Error)]
pub enum BatchError {
    /// A part cannot be written.
    #[error(transparent)]
    Part(#[from] PartError),
    /// A thread cannot be started.
    #[error("no thread for the run: {0}")]
    Thread(std::io::Error),
    /// Too many pictures failed.
    #[error("{errors} pictures failed, more than the {most} allowed; the last: {last}")]
    TooManyErrors {
        /// Pictures that failed.
        errors: usize,
        /// How many may.
        most: usize,
        /// The last of them, with the reason.
        last: String,
    },
    /// Finished parts that nobody asked to go on with.
    #[error("{}: finished already; resuming keeps it, another folder begins anew", .0.display())]
    Exists(PathBuf),
    /// Parts of another run.
    #[error(
        "{}: of a run with other inputs, options, shards or another model; give another folder",
        .0.display()
    )]
    OtherRun(PathBuf),
    /// The caller asked to stop. Finished parts stay.
    #[error("stopped")]
    Stopped,
}

/// A picture that was read, and how long that took.
type Decoded = (Result<Image, String>, Duration);

/// A part that is to be written.
struct Finished {
    path: PathBuf,
    rows: Vec<Row>,
    pictures: usize,
    errors: usize,
    key: String,
}

impl Batch {
    /// Runs over the items of the shard. `report` is called after each picture and can stop the run.
    pub fn run(
        &self,
        items: &[Item],
        report: &mut dyn FnMut(Event<'_>) -> ControlFlow<()>,
    ) -> Result<Summary, BatchError> {
        let own: Vec<Item> =
            items.iter().filter(|item| self.shard.holds(&item.id)).cloned().collect();
        let mut summary = Summary { pictures: own.len(), ..Summary::default() };
        let mut missing = Vec::new();
        let chunks = own.chunks(self.pictures_per_part.max(1));
        self.check_strays(chunks.len())?;
        for (number, items) in chunks.enumerate() {
            let (path, key) = (self.output.join(part_name(self.shard, number)), self.key(items));
            match parts::state(&path, &key) {
                State::Finished(mark) if self.resume => summary.keep(&mark),
                State::Other if self.resume => return Err(BatchError::OtherRun(path)),
                State::Finished(_) | State::Other => return Err(BatchError::Exists(path)),
                State::Missing => missing.push((path, key, items)),
            }
        }
        let wanted = missing.iter().flat_map(|(_, _, items)| items.iter().cloned()).collect();
        let (pictures, _reader) = start_reading(wanted)?;
        let (parts, writer) = start_writing(self.common())?;
        let mut work = Work { batch: self, pictures, done: summary.kept, summary, report };
        let outcome = missing.into_iter().try_for_each(|(path, key, items)| {
            let part = work.part(path, key, items)?;
            let start = Instant::now();
            // A writer that failed has ended; its error is taken below.
            let sent = parts.send(part);
            work.summary.stages.waiting += start.elapsed();
            sent.map_err(|_| BatchError::Stopped)
        });
        drop(parts);
        work.summary.stages.write = writer.join().map_err(|_| BatchError::Stopped)??;
        outcome.map(|()| work.summary)
    }

    /// Refuses a folder with parts that would be read along with those of this run.
    fn check_strays(&self, parts: usize) -> Result<(), BatchError> {
        let found = parts::stray(&self.output, self.shard, parts);
        let found =
            found.map_err(|source| PartError::Write { path: self.output.clone(), source })?;
        found.map_or(Ok(()), |path| Err(BatchError::OtherRun(path)))
    }

    /// The rows of a picture; a failure is tried once more.
    fn answer(&self, item: &Item, image: &Image) -> Result<Vec<Row>, String> {
        let ask = || {
            let mut rows = self.task.rows(&self.sam, item, image)?;
            if let Some(tolerance) = self.outlines {
                add_outlines(&mut rows, image.size(), tolerance)?;
            }
            Ok(rows)
        };
        ask().or_else(|_: TaskError| ask()).map_err(|error| error.to_string())
    }

    fn options_hash(&self) -> String {
        sha256(self.options_text().as_bytes())[..16].to_owned()
    }

    /// All that changes what a model answers.
    fn options_text(&self) -> String {
        let precision = format!("{:?}", self.sam.profile().precision);
        let outlines =
            self.outlines.map(|pixels| format!(" outlines={pixels}")).unwrap_or_default();
        let (task, device) = (self.task.text(), device_kind(&self.sam));
        format!("{task} precision={precision} device={device}{outlines}")
    }

    /// Digest of what a part depends on.
    fn key(&self, items: &[Item]) -> String {
        let mut text = format!(
            "{}\n{}\n{}\n",
            env!("CARGO_PKG_VERSION"),
            self.model_sha256,
            self.options_text()
        );
        for item in items {
            text.push_str(&format!("{:?} {:?} {:?}\n", item.id, item.boxes, stamp(item)));
        }
        sha256(text.as_bytes())
    }

    fn common(&self) -> Common {
        let note = |key: &str, value: String| (format!("cutout.{key}"), value);
        Common {
            shard: self.shard.index(),
            model: self.sam.description(),
            options_hash: self.options_hash(),
            notes: vec![
                note("version", env!("CARGO_PKG_VERSION").to_owned()),
                note("model", self.sam.description()),
                note("model_sha256", self.model_sha256.clone()),
                note("options", self.options_text()),
            ],
        }
    }
}

/// A run that is under way.
struct Work<'a> {
    batch: &'a Batch,
    pictures: Receiver<Decoded>,
    done: usize,
    summary: Summary,
    report: &'a mut dyn FnMut(Event<'_>) -> ControlFlow<()>,
}

impl Work<'_> {
    /// The rows of a part.
    fn part(&mut self, path: PathBuf, key: String, items: &[Item]) -> Result<Finished, BatchError> {
        let (mut rows, mut errors) = (Vec::new(), 0);
        for item in items {
            match self.answer(item)? {
                Ok(found) => rows.extend(found),
                Err(reason) => {
                    errors += 1;
                    self.count_error(item, &reason)?;
                    let (id, error) = (item.id.clone(), Some(reason));
                    rows.push(Row { id, instance: -1, error, ..Row::default() });
                }
            }
            self.done += 1;
            let event = Event::Picture { done: self.done, all: self.summary.pictures };
            if (self.report)(event).is_break() {
                return Err(BatchError::Stopped);
            }
        }
        self.summary.rows += rows.len();
        Ok(Finished { path, rows, pictures: items.len(), errors, key })
    }

    /// The rows of the next picture, which is this item, or why it failed.
    fn answer(&mut self, item: &Item) -> Result<Result<Vec<Row>, String>, BatchError> {
        let stages = &mut self.summary.stages;
        let start = Instant::now();
        let (decoded, time) = self.pictures.recv().map_err(|_| BatchError::Stopped)?;
        stages.waiting += start.elapsed();
        stages.decode += time;
        let start = Instant::now();
        let rows = decoded.and_then(|image| self.batch.answer(item, &image));
        stages.model += start.elapsed();
        Ok(rows)
    }

    fn count_error(&mut self, item: &Item, reason: &str) -> Result<(), BatchError> {
        self.summary.errors += 1;
        // Errors of files name them already.
        let is_named = reason.contains(&item.id);
        let last = if is_named { reason.to_owned() } else { format!("{}: {reason}", item.id) };
        if (self.report)(Event::Failed(&last)).is_break() {
            return Err(BatchError::Stopped);
        }
        let errors = self.summary.errors;
        match self.batch.max_errors.filter(|most| errors > *most) {
            None => Ok(()),
            Some(most) => Err(BatchError::TooManyErrors { errors, most, last }),
        }
    }
}

/// The kind of device: numbers of GPUs and processors differ in their last digits.
fn device_kind(sam: &Sam) -> &'static str {
    if sam.device().starts_with("cpu") { "cpu" } else { "gpu" }
}

/// Length of a file of its own: another file under the same name is noticed.
fn stamp(item: &Item) -> Option<u64> {
    match &item.source {
        Source::File(path) => path.metadata().ok().map(|found| found.len()),
        Source::Part { length, .. } => Some(*length),
        Source::Cell { table, .. } => table.metadata().ok().map(|found| found.len()),
    }
}

impl Summary {
    fn keep(&mut self, mark: &Mark) {
        self.kept += mark.pictures;
        self.errors += mark.errors;
        self.rows += mark.rows;
    }
}

/// Decodes pictures on a thread, a few ahead of the model.
#[expect(clippy::disallowed_methods, reason = "reads and decodes while the model computes")]
fn start_reading(items: Vec<Item>) -> Result<(Receiver<Decoded>, JoinHandle<()>), BatchError> {
    let (sender, receiver) = sync_channel(WAITING);
    let read = move || {
        let mut bytes = Bytes::default();
        for item in &items {
            let start = Instant::now();
            let image = decode(item, &mut bytes);
            if sender.send((image, start.elapsed())).is_err() {
                return;
            }
        }
    };
    let thread = thread::Builder::new().name("pictures".to_owned()).spawn(read);
    Ok((receiver, thread.map_err(BatchError::Thread)?))
}

fn decode(item: &Item, bytes: &mut Bytes) -> Result<Image, String> {
    let limits = DecodeLimits::default();
    let image = match (bytes.of(item)?, &item.source) {
        (Some(bytes), _) => cutout_imaging::decode(&bytes, &item.id, &limits),
        (None, Source::File(path)) => cutout_imaging::open(path, &limits),
        (None, Source::Part { .. } | Source::Cell { .. }) => return Err("no bytes".to_owned()),
    };
    image.map_err(|error| error.to_string())
}

/// Writes parts on a thread, while the model goes on.
#[expect(clippy::disallowed_methods, reason = "compresses and writes while the model computes")]
#[expect(clippy::type_complexity, reason = "a channel and a thread")]
fn start_writing(
    common: Common,
) -> Result<(SyncSender<Finished>, JoinHandle<Result<Duration, PartError>>), BatchError> {
    let (sender, receiver) = sync_channel::<Finished>(1);
    let write = move || {
        let mut time = Duration::ZERO;
        for part in receiver {
            let start = Instant::now();
            write_part(part, &common)?;
            time += start.elapsed();
        }
        Ok(time)
    };
    let thread = thread::Builder::new().name("parts".to_owned()).spawn(write);
    Ok((sender, thread.map_err(BatchError::Thread)?))
}

fn write_part(part: Finished, common: &Common) -> Result<(), PartError> {
    let Finished { path, rows, pictures, errors, key } = part;
    let failed = |reason: String| PartError::Encode { path: path.clone(), reason };
    let bytes = rows::encode(&rows, common).map_err(|error| failed(error.to_string()))?;
    let mark = Mark { rows: rows.len(), pictures, errors, sha256: sha256(&bytes), key };
    parts::write(&path, &bytes, &mark)
}
