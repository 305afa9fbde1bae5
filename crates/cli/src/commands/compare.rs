//! `cutout compare`: what a precision gives and costs, for one model on the user's own pictures.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Result, bail};
use clap::Args;
use cutout_sam::{Device, Loss, Profile, Sam, SceneAnswers, profile_beside};
use serde_json::{Value, json};

use crate::options::{ModelSource, PrecisionName, parse_device, parse_threads};
use crate::progress::Progress;
use crate::{format, memory, picture, stdio};

/// Compare precisions with f32: errors, masks, time and memory
#[derive(Args)]
#[command(after_help = "Examples:
  cutout compare sam_vit_b_01ec64.pth --precision bf16,int8 --images photos
  cutout compare sam3.pt --precision bf16 --images street.jpg --text \"yellow bus\" --json

Each picture is asked 16 clicks on a grid and 5 boxes, and the phrases given. Errors are
relative to f32, over all numbers. IoU is that of each mask with the f32 mask of the same
candidate, mean and least; `choice` is the share of prompts whose best candidate is another.
Times are medians; memory is what the process holds after the last picture. Parts that the
profile beside the checkpoint names keep their precision, except in the reference.")]
pub(crate) struct Compare {
    /// Checkpoint, as for `--model` of other commands; `built-in` names the built-in model
    #[arg(value_name = "MODEL")]
    model: PathBuf,
    /// Precisions to compare with f32, separated by commas
    #[arg(long, value_name = "TYPES", value_delimiter = ',', default_value = "bf16,int8")]
    precision: Vec<PrecisionName>,
    /// Picture, or folder of pictures
    #[arg(long, value_name = "DIR")]
    images: PathBuf,
    /// At most this many pictures of the folder, by name
    #[arg(long, value_name = "N", default_value = "8", value_parser = clap::value_parser!(u32).range(1..=256))]
    limit: u32,
    /// Phrase to find (SAM 3); may be repeated
    #[arg(long, value_name = "PHRASE")]
    text: Vec<String>,
    /// Device: auto, cpu, cuda or cuda:N
    #[arg(long, value_name = "DEVICE", value_parser = parse_device)]
    device: Option<Device>,
    /// Number of threads; by default one per core
    #[arg(long, value_name = "N", value_parser = parse_threads)]
    threads: Option<NonZeroUsize>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Everything measured in one precision.
struct Run {
    answers: Vec<SceneAnswers>,
    embed_ms: f64,
    prompt_ms: f64,
    memory_mib: Option<f64>,
}

impl Compare {
    pub(crate) fn run(self) -> Result<()> {
        let source = ModelSource::named(&self.model)?;
        let mut pictures = picture::pictures_in(&self.images)?;
        pictures.truncate(self.limit as usize);
        let progress = Progress::spinner("f32");
        let reference = self.measure(&source, PrecisionName::F32, &pictures)?;
        let mut rows = vec![Row { name: "f32", run: &reference, loss: None }.report()];
        for &precision in &self.precision {
            let name = precision.name();
            progress.say(name);
            let run = self.measure(&source, precision, &pictures)?;
            let mut loss = Loss::default();
            for (found, expected) in run.answers.iter().zip(&reference.answers) {
                loss.add(found, expected)?;
            }
            rows.push(Row { name, run: &run, loss: Some(loss) }.report());
        }
        drop(progress);
        if self.json {
            return stdio::print_json(&json!({ "pictures": pictures.len(), "precisions": rows }));
        }
        stdio::print(&table(&rows))
    }

    fn measure(
        &self,
        source: &ModelSource,
        precision: PrecisionName,
        pictures: &[PathBuf],
    ) -> Result<Run> {
        let before = memory::resident_mib();
        let sam = source.open(self.profile(source, precision)?)?;
        if !self.text.is_empty() && !sam.finds() {
            bail!("{} finds no phrases: --text needs SAM 3", sam.description());
        }
        let (mut answers, mut embed, mut prompt) = (Vec::new(), Vec::new(), Vec::new());
        for (number, path) in pictures.iter().enumerate() {
            let image = picture::open(path)?;
            if number == 0 {
                // The first run compiles and packs.
                self.ask(&sam, &image)?;
            }
            let start = Instant::now();
            let scene = sam.embed(&image)?;
            sam.synchronize()?;
            embed.push(milliseconds(start));
            let start = Instant::now();
            answers.push(SceneAnswers::of(&scene, &self.text)?);
            prompt.push(milliseconds(start));
        }
        let held = before.zip(memory::resident_mib()).map(|(before, after)| after - before);
        let (embed_ms, prompt_ms) = (median(embed), median(prompt));
        Ok(Run { answers, embed_ms, prompt_ms, memory_mib: held })
    }

    fn ask(&self, sam: &Sam, image: &cutout_imaging::Image) -> Result<()> {
        SceneAnswers::of(&sam.embed(image)?, &self.text)?;
        Ok(())
    }

    fn profile(&self, source: &ModelSource, precision: PrecisionName) -> Result<Profile> {
        let mut profile = match source.file() {
            Some(file) => profile_beside(file)?.unwrap_or_default(),
            None => Profile::default(),
        };
        if let Some(device) = &self.device {
            profile.device = device.clone();
        }
        profile.threads = self.threads.or(profile.threads);
        if precision == PrecisionName::F32 {
            // What the others are compared with has no part in another precision.
            profile.parts.clear();
        }
        profile.precision = precision.precision(&profile)?;
        Ok(profile)
    }
}

fn milliseconds(start: Instant) -> f64 {
    start.elapsed().as_secs_f64() * 1e3
}

/// The middle of some times; there is at least one.
fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied().unwrap_or(f64::NAN)
}

/// A line of the report.
struct Row<'a> {
    name: &'a str,
    run: &'a Run,
    /// `None` for f32 itself.
    loss: Option<Loss>,
}

/// Keys of a row and headings of their columns.
const COLUMNS: [(&str, &str); 10] = [
    ("precision", ""),
    ("encoder_error", "encoder error"),
    ("logit_error", "logit error"),
    ("mask_iou", "mask IoU"),
    ("least_iou", "least"),
    ("other_choices", "choice"),
    ("detection_iou", "found IoU"),
    ("embed_ms", "embed ms"),
    ("answers_ms", "answers ms"),
    ("memory_mib", "MiB"),
];

impl Row<'_> {
    fn report(&self) -> Value {
        let of = |value: fn(&Loss) -> Option<f64>| self.loss.as_ref().and_then(value);
        json!({
            "precision": self.name,
            "encoder_error": of(Loss::encoder_error),
            "logit_error": of(Loss::logit_error),
            "mask_iou": of(Loss::mask_iou),
            "least_iou": of(Loss::least_iou),
            "other_choices": of(Loss::other_choices),
            "detection_iou": of(Loss::detection_iou),
            "embed_ms": self.run.embed_ms,
            "answers_ms": self.run.prompt_ms,
            "memory_mib": self.run.memory_mib,
        })
    }
}

/// The rows as a table, without columns that have no numbers.
fn table(rows: &[Value]) -> String {
    let known = |key: &str| rows.iter().any(|row| !row[key].is_null());
    let columns: Vec<(&str, &str)> = COLUMNS.into_iter().filter(|(key, _)| known(key)).collect();
    let headings = columns.iter().map(|(_, heading)| (*heading).to_owned()).collect();
    let lines =
        rows.iter().map(|row| columns.iter().map(|(key, _)| cell(key, &row[key])).collect());
    format::table(&std::iter::once(headings).chain(lines).collect::<Vec<_>>())
}

fn cell(key: &str, value: &Value) -> String {
    match (key, value.as_f64()) {
        (_, None) => value.as_str().unwrap_or("-").to_owned(),
        ("encoder_error" | "logit_error", Some(number)) => format!("{number:.1e}"),
        ("mask_iou" | "least_iou" | "detection_iou", Some(number)) => format!("{number:.4}"),
        ("other_choices", Some(number)) => format!("{:.1} %", 100.0 * number),
        (_, Some(number)) => format!("{number:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_without_numbers_are_left_out() {
        let rows = [
            json!({ "precision": "f32", "embed_ms": 100.4 }),
            json!({ "precision": "bf16", "embed_ms": 50.0, "mask_iou": 0.99876, "encoder_error": 0.00123 }),
        ];
        let text = table(&rows);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "      encoder error  mask IoU  embed ms");
        assert_eq!(lines[1], "f32   -              -         100");
        assert_eq!(lines[2], "bf16  1.2e-3         0.9988    50");
    }

    #[test]
    fn the_middle_time_counts() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert!(median(Vec::new()).is_nan());
    }
}
