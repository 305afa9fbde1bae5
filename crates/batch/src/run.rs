//! A run over all items of a shard.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use cutout_imaging::{DecodeLimits, Image};
use cutout_sam::{Fault, Faulty, Fleet, FleetAnswer, FleetError, FleetEvent, Sam};

use crate::input::{Bytes, Item, Source};
use crate::parts::{self, Mark, PartError, State, part_name, sha256};
use crate::rows::{self, Common, Row};
use crate::shard::Shard;
use crate::task::{Task, TaskError, add_outlines};

/// A run.
pub struct Batch {
    /// The model, on the devices that share the pictures.
    pub fleet: Fleet,
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
    /// A device failed, which one and why; the others go on.
    Lost(&'a str),
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

/// Time of each stage, summed over threads and devices. The first and the last run beside the model: they cost only what the model
/// waits for them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Stages {
    /// Reading and decoding.
    pub decode: Duration,
    /// The model.
    pub model: Duration,
    /// Encoding and writing parts.
    pub write: Duration,
    /// Devices waiting for a picture, or for the writing of pictures that were done.
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
    /// No device is left, or their threads cannot be started. Finished parts stay.
    #[error(transparent)]
    Fleet(FleetError),
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
struct Decoded {
    image: Image,
    time: Duration,
}

/// The rows of a picture, and how long the model took.
type Answered = (Vec<Row>, Duration);

/// Why a picture has no rows.
struct Failure {
    reason: String,
    fault: Fault,
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.reason)
    }
}

impl Faulty for Failure {
    fn fault(&self) -> Fault {
        self.fault
    }
}

/// A part whose pictures are not all done.
struct Open<'a> {
    path: PathBuf,
    key: String,
    items: &'a [Item],
}

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
                State::Missing => missing.push(Open { path, key, items }),
            }
        }
        let (parts, writer) = start_writing(self.common())?;
        let mut work = Work { batch: self, parts, done: summary.kept, summary, report };
        let outcome = work.run(missing);
        let Work { parts, mut summary, .. } = work;
        drop(parts);
        // A writer that failed has ended, and stopped the run.
        summary.stages.write = writer.join().map_err(|_| BatchError::Stopped)??;
        outcome.map(|()| summary)
    }

    /// Refuses a folder with parts that would be read along with those of this run.
    fn check_strays(&self, parts: usize) -> Result<(), BatchError> {
        let found = parts::stray(&self.output, self.shard, parts);
        let found =
            found.map_err(|source| PartError::Write { path: self.output.clone(), source })?;
        found.map_or(Ok(()), |path| Err(BatchError::OtherRun(path)))
    }

    /// The rows of a picture. A failure is tried once more: on the same device, or if that is to blame by the fleet on another.
    fn answer(&self, sam: &Sam, item: &Item, image: &Image) -> Result<Vec<Row>, Failure> {
        let ask = || {
            let mut rows = self.task.rows(sam, item, image)?;
            if let Some(tolerance) = self.outlines {
                add_outlines(&mut rows, image.size(), tolerance)?;
            }
            Ok(rows)
        };
        let is_for_others = |error: &TaskError| match error.fault() {
            Fault::Item => false,
            Fault::Memory => self.fleet.sams().len() > 1,
            Fault::Device => true,
        };
        let again = |error: TaskError| if is_for_others(&error) { Err(error) } else { ask() };
        ask()
            .or_else(again)
            .map_err(|error| Failure { fault: error.fault(), reason: error.to_string() })
    }

    fn options_hash(&self) -> String {
        sha256(self.options_text().as_bytes())[..16].to_owned()
    }

    /// All that changes what a model answers.
    fn options_text(&self) -> String {
        let precision = format!("{:?}", self.fleet.first().profile().precision);
        let outlines =
            self.outlines.map(|pixels| format!(" outlines={pixels}")).unwrap_or_default();
        let (task, device) = (self.task.text(), device_kind(self.fleet.first()));
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
            model: self.fleet.first().description(),
            options_hash: self.options_hash(),
            notes: vec![
                note("version", env!("CARGO_PKG_VERSION").to_owned()),
                note("model", self.fleet.first().description()),
                note("model_sha256", self.model_sha256.clone()),
                note("options", self.options_text()),
            ],
        }
    }
}

/// A run that is under way.
struct Work<'a> {
    batch: &'a Batch,
    parts: SyncSender<Finished>,
    done: usize,
    summary: Summary,
    report: &'a mut dyn FnMut(Event<'_>) -> ControlFlow<()>,
}

impl Work<'_> {
    /// Answers all pictures of these parts, in their order.
    fn run(&mut self, parts: Vec<Open<'_>>) -> Result<(), BatchError> {
        let items: Vec<&Item> = parts.iter().flat_map(|part| part.items).collect();
        let (batch, bytes) = (self.batch, Mutex::<Bytes>::default());
        let mut parts = parts.into_iter();
        let mut open: Option<(Open<'_>, Finished)> = None;
        let mut failed = None;
        let outcome = batch.fleet.run(
            &items,
            |item| read(item, &bytes),
            |sam, item, picture| {
                let start = Instant::now();
                let rows = batch.answer(sam, item, &picture.image)?;
                Ok((rows, start.elapsed()))
            },
            &mut |event| {
                let done = match event {
                    FleetEvent::Done(answer) => self.done(&mut parts, &mut open, answer),
                    FleetEvent::Lost { device, reason, .. } => {
                        self.tell(Event::Lost(&format!("{device}: {reason}")))
                    }
                };
                match done {
                    Ok(()) => ControlFlow::Continue(()),
                    Err(error) => {
                        failed = Some(error);
                        ControlFlow::Break(())
                    }
                }
            },
        );
        match (failed, outcome) {
            (Some(error), _) => Err(error),
            (None, Ok(())) => Ok(()),
            (None, Err(error)) => Err(BatchError::Fleet(error)),
        }
    }

    /// Takes the next picture. The last of a part completes the part.
    fn done<'a>(
        &mut self,
        parts: &mut impl Iterator<Item = Open<'a>>,
        open: &mut Option<(Open<'a>, Finished)>,
        answer: FleetAnswer<Decoded, Answered, Failure>,
    ) -> Result<(), BatchError> {
        let begin = |part: Open<'a>| {
            let (path, key) = (part.path.clone(), part.key.clone());
            (part, Finished { path, rows: Vec::new(), pictures: 0, errors: 0, key })
        };
        let Some((part, mut finished)) = open.take().or_else(|| parts.next().map(begin)) else {
            return Ok(());
        };
        self.add(&part.items[finished.pictures], &mut finished, answer)?;
        if finished.pictures < part.items.len() {
            *open = Some((part, finished));
            return Ok(());
        }
        // A writer that failed has ended; its error is taken when it is joined.
        self.parts.send(finished).map_err(|_| BatchError::Stopped)
    }

    /// Adds the rows of a picture to its part.
    fn add(
        &mut self,
        item: &Item,
        part: &mut Finished,
        answer: FleetAnswer<Decoded, Answered, Failure>,
    ) -> Result<(), BatchError> {
        let FleetAnswer { picture, answer, waited, .. } = answer;
        let stages = &mut self.summary.stages;
        stages.waiting += waited;
        stages.decode += picture.map_or(Duration::ZERO, |picture| picture.time);
        part.pictures += 1;
        let before = part.rows.len();
        match answer {
            Ok((rows, time)) => {
                stages.model += time;
                part.rows.extend(rows);
            }
            Err(Failure { reason, .. }) => {
                part.errors += 1;
                self.count_error(item, &reason)?;
                let (id, error) = (item.id.clone(), Some(reason));
                part.rows.push(Row { id, instance: -1, error, ..Row::default() });
            }
        }
        self.summary.rows += part.rows.len() - before;
        self.done += 1;
        self.tell(Event::Picture { done: self.done, all: self.summary.pictures })
    }

    fn tell(&mut self, event: Event<'_>) -> Result<(), BatchError> {
        if (self.report)(event).is_break() { Err(BatchError::Stopped) } else { Ok(()) }
    }

    fn count_error(&mut self, item: &Item, reason: &str) -> Result<(), BatchError> {
        self.summary.errors += 1;
        // Errors of files name them already.
        let is_named = reason.contains(&item.id);
        let last = if is_named { reason.to_owned() } else { format!("{}: {reason}", item.id) };
        self.tell(Event::Failed(&last))?;
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

/// Reads and decodes a picture. Bytes inside other files are read by one thread at a time, in order, and decoded by all.
fn read(item: &Item, bytes: &Mutex<Bytes>) -> Result<Decoded, Failure> {
    let start = Instant::now();
    // What a thread that panicked has left is only a cache.
    let found = bytes.lock().unwrap_or_else(PoisonError::into_inner).of(item);
    let image = found.and_then(|bytes| decode(item, bytes));
    let image = image.map_err(|reason| Failure { reason, fault: Fault::Item })?;
    Ok(Decoded { image, time: start.elapsed() })
}

fn decode(item: &Item, bytes: Option<Vec<u8>>) -> Result<Image, String> {
    let limits = DecodeLimits::default();
    let image = match (bytes, &item.source) {
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
