//! `cutout batch`: masks of many pictures as Parquet.

use std::fs::{self, File};
use std::io::Read;
use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Args;
use cutout_batch::{Batch as Run, BatchError, Columns, Event, Item, Shard, Summary, Task, collect};
use cutout_sam::{Find, Sam, builtin_bytes};
use ring::digest::{Context as Digest, SHA256};

use super::everything::Knobs;
use crate::environment::Environment;
use crate::failure::Usage;
use crate::options::{ModelOption, ModelSource, RunOptions};
use crate::output::parse_tolerance;
use crate::progress::Progress;
use crate::{interrupt, stdio};

/// Find the masks of many pictures and write them as Parquet, one row per instance
#[derive(Args)]
#[command(after_help = "Examples:
  cutout batch photos -o masks
      automatic masks of all pictures in photos and its subfolders
  cutout batch 'shards/*.tar' -o masks --model sam2.1-tiny --resume
      goes on where a run stopped; finished parts are not computed again
  cutout batch photos -o masks --model sam3.pt --text dog --text \"red ball\"
  cutout batch table.parquet -o masks --boxes-column boxes
      a mask for each box; columns uri (or bytes) and boxes, lists of [left, top, right, bottom]
  cutout batch photos -o masks --model sam3.pt --text dog --device cuda:all
      all GPUs of this machine share the pictures; the files are those of one GPU
  cutout batch photos -o masks --shard 0/3
      the first of three processes that share the pictures; --shard auto on SLURM

A picture that cannot be read becomes a row with an error. Parts appear whole, each with a mark.")]
pub(crate) struct Batch {
    /// Folders, pictures, patterns such as 'photos/*.jpg', .txt files with a path on each line, .parquet tables, .tar archives
    #[arg(required = true, value_name = "INPUT")]
    inputs: Vec<String>,
    #[command(flatten)]
    model: ModelOption,
    /// Folder of the part files
    #[arg(long, short, value_name = "DIR")]
    output: PathBuf,
    /// Find every object of a phrase instead of automatic masks (SAM 3); can be given several times
    #[arg(long, value_name = "PHRASE")]
    text: Vec<String>,
    /// Keep objects of phrases with a score above this (default 0.5)
    #[arg(long, value_name = "SCORE", requires = "text")]
    threshold: Option<f32>,
    /// One mask for each box in this column of the tables instead of automatic masks
    #[arg(long, value_name = "COLUMN", conflicts_with = "text")]
    boxes_column: Option<String>,
    /// Column of the tables with the id of a picture (default id)
    #[arg(long, value_name = "COLUMN")]
    id_column: Option<String>,
    /// Column of the tables with the picture: bytes or a path (default bytes, image or uri)
    #[arg(long, value_name = "COLUMN")]
    picture_column: Option<String>,
    /// Also write outlines, as WKB in the column polygon, that leave the border of the pixels by at most this; 0 for exact ones
    #[arg(long, value_name = "PIXELS", value_parser = parse_tolerance, allow_negative_numbers = true)]
    polygons: Option<f64>,
    /// Do share I of N, from 0 on; auto takes both from SLURM, auto/N takes I from SLURM or Kubernetes
    #[arg(long, value_name = "I/N")]
    shard: Option<String>,
    /// Keep the parts that are finished already
    #[arg(long)]
    resume: bool,
    /// Pictures in one part file
    #[arg(long, value_name = "N", default_value = "100")]
    pictures_per_part: NonZeroUsize,
    /// Stop when more pictures than this have failed; by default none stops the run
    #[arg(long, value_name = "N")]
    max_errors: Option<usize>,
    #[command(flatten)]
    knobs: Knobs,
    #[command(flatten)]
    run: RunOptions,
}

impl Batch {
    pub(crate) fn run(self) -> Result<()> {
        let shard = self.shard()?;
        let columns = Columns {
            id: self.id_column.clone(),
            picture: self.picture_column.clone(),
            boxes: self.boxes_column.clone(),
        };
        let items = collect(&self.inputs, &columns)?;
        let model = self.model.source()?;
        self.claim(&model)?;
        let fleet = model.start_fleet(&self.run, items.len())?;
        let task = self.task(fleet.first())?;
        fs::create_dir_all(&self.output)
            .with_context(|| format!("{}: cannot make the folder", self.output.display()))?;
        let batch = Run {
            fleet,
            model_sha256: sha256(&model)?,
            task,
            outlines: self.polygons,
            shard,
            output: self.output.clone(),
            pictures_per_part: self.pictures_per_part.get(),
            resume: self.resume,
            max_errors: self.max_errors,
        };
        interrupt::finish_gracefully();
        interrupt::say("interrupted: finished parts stay, --resume goes on from there");
        let summary = run(&batch, &items)?;
        stdio::note(&told(&summary, &self.output));
        Ok(())
    }

    /// Notes what is read, and refuses to write among it.
    fn claim(&self, model: &ModelSource) -> Result<()> {
        let mut claims = self.run.claims(model);
        self.inputs.iter().for_each(|input| claims.reads(input));
        claims.writes_into(&self.output, |_| false)
    }

    fn shard(&self) -> Result<Shard> {
        let Some(given) = &self.shard else { return Ok(Shard::WHOLE) };
        let environment = Environment::read();
        let wrong = |reason: &str| Usage::error(format!("--shard {given}: {reason}"));
        let Some(rest) = given.strip_prefix("auto") else {
            return given
                .parse()
                .map_err(|error: cutout_batch::ShardError| wrong(&error.to_string()));
        };
        let count = match rest.strip_prefix('/') {
            Some(count) => count.parse().map_err(|_| wrong("expected a number after auto/"))?,
            None => environment
                .job_count
                .filter(|_| rest.is_empty())
                .ok_or_else(|| wrong("SLURM_ARRAY_TASK_COUNT is not set; give auto/N or I/N"))?,
        };
        let index = environment.job_index.ok_or_else(|| {
            wrong("neither SLURM_ARRAY_TASK_ID nor JOB_COMPLETION_INDEX is set; give I/N")
        })?;
        Shard::new(index, count).map_err(|error| wrong(&error.to_string()))
    }

    fn task(&self, sam: &Sam) -> Result<Task> {
        if self.boxes_column.is_some() {
            return Ok(Task::Boxes);
        }
        if self.text.is_empty() {
            return Ok(Task::Everything(Box::new(self.knobs.options(sam)?)));
        }
        let mut find = self.text.iter().fold(Find::default(), |find, phrase| find.and(phrase));
        if let Some(threshold) = self.threshold {
            find = find.threshold(threshold);
        }
        sam.check_find(&find, cutout_imaging::Size::square(1))?;
        Ok(Task::Find(find))
    }
}

/// Runs with a bar; a signal ends the run after the current picture.
fn run(batch: &Run, items: &[Item]) -> Result<Summary> {
    let bar = Progress::bar(items.len() as u64, "pictures");
    let mut report = |event: Event<'_>| {
        match event {
            Event::Picture { done, all } => {
                bar.set_length(all as u64);
                bar.set(done as u64);
            }
            Event::Failed(reason) | Event::Lost(reason) => stdio::warn(reason),
        }
        if interrupt::requested() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    match batch.run(items, &mut report) {
        Err(BatchError::Stopped) => {
            interrupt::check()?;
            Err(BatchError::Stopped.into())
        }
        other => Ok(other?),
    }
}

/// What a run did, in a line.
fn told(summary: &Summary, output: &Path) -> String {
    let Summary { pictures, kept, errors, rows, stages } = summary;
    let seconds = |time: std::time::Duration| format!("{:.1}", time.as_secs_f64());
    format!(
        "{}: {rows} rows of {pictures} pictures ({kept} done before, {errors} failed); model {} s, and beside it decoding {} s and \
         writing {} s, for which it waited {} s",
        output.display(),
        seconds(stages.model),
        seconds(stages.decode),
        seconds(stages.write),
        seconds(stages.waiting),
    )
}

/// SHA-256 of the model's file.
fn sha256(model: &ModelSource) -> Result<String> {
    let mut digest = Digest::new(&SHA256);
    match model.file() {
        None => digest.update(builtin_bytes()),
        Some(path) => {
            let mut file = File::open(path).with_context(|| path.display().to_string())?;
            let mut block = vec![0; 1 << 20];
            loop {
                let length = file.read(&mut block).with_context(|| path.display().to_string())?;
                if length == 0 {
                    break;
                }
                digest.update(&block[..length]);
            }
        }
    }
    Ok(digest.finish().as_ref().iter().map(|byte| format!("{byte:02x}")).collect())
}
