//! The card of a loss: what fewer bits give and cost, one line for each way to run a model, beside its answers in f32.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Result, bail};
use cutout_imaging::{Image, Size};
use cutout_sam::{Device, Loss, Profile, Sam, SceneAnswers, profile_beside};
use serde_json::{Value, json};

use crate::options::{ModelSource, PrecisionName};
use crate::progress::Progress;
use crate::{format, memory, picture};

/// What is asked of a model, and where it runs.
#[derive(Default)]
pub(crate) struct Questions {
    /// Files of pictures; without any, one picture is drawn.
    pub(crate) pictures: Vec<PathBuf>,
    /// Phrases to find.
    pub(crate) text: Vec<String>,
    pub(crate) device: Option<Device>,
    pub(crate) threads: Option<NonZeroUsize>,
}

/// One way to run a model.
pub(crate) struct Candidate<'a> {
    /// Name in the card.
    pub(crate) name: String,
    pub(crate) source: &'a ModelSource,
    pub(crate) precision: PrecisionName,
}

/// Everything measured of one candidate.
struct Run {
    answers: Vec<SceneAnswers>,
    embed_ms: f64,
    prompt_ms: f64,
    memory_mib: Option<f64>,
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

impl Questions {
    /// The rows of a card: the first candidate, and how far the others are from it.
    pub(crate) fn rows(
        &self,
        reference: &Candidate<'_>,
        others: &[Candidate<'_>],
    ) -> Result<Vec<Value>> {
        let progress = Progress::spinner(&reference.name);
        let expected = self.measure(reference)?;
        let mut rows = vec![report(&reference.name, &expected, None)];
        for candidate in others {
            progress.say(&candidate.name);
            let run = self.measure(candidate)?;
            let mut loss = Loss::default();
            for (found, expected) in run.answers.iter().zip(&expected.answers) {
                loss.add(found, expected)?;
            }
            rows.push(report(&candidate.name, &run, Some(&loss)));
        }
        Ok(rows)
    }

    fn measure(&self, candidate: &Candidate<'_>) -> Result<Run> {
        let before = memory::resident_mib();
        let sam = candidate.source.open(self.profile(candidate)?)?;
        if !self.text.is_empty() && !sam.finds() {
            bail!("{} finds no phrases: --text needs SAM 3", sam.description());
        }
        let (mut answers, mut embed, mut prompt) = (Vec::new(), Vec::new(), Vec::new());
        for number in 0..self.pictures.len().max(1) {
            let image = self.picture(number)?;
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

    fn picture(&self, number: usize) -> Result<Image> {
        match self.pictures.get(number) {
            Some(path) => Ok(picture::open(path)?),
            None => picture::drawn(Size::new(1200, 800), 0),
        }
    }

    fn ask(&self, sam: &Sam, image: &Image) -> Result<()> {
        SceneAnswers::of(&sam.embed(image)?, &self.text)?;
        Ok(())
    }

    fn profile(&self, candidate: &Candidate<'_>) -> Result<Profile> {
        let mut profile = match candidate.source.file() {
            Some(file) => profile_beside(file)?.unwrap_or_default(),
            None => Profile::default(),
        };
        if let Some(device) = &self.device {
            profile.device = device.clone();
        }
        profile.threads = self.threads.or(profile.threads);
        if candidate.precision == PrecisionName::F32 {
            // What the others are compared with has no part in another precision.
            profile.parts.clear();
        }
        profile.precision = candidate.precision.precision(&profile, candidate.source.file())?;
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

/// One row; the reference has no loss.
fn report(name: &str, run: &Run, loss: Option<&Loss>) -> Value {
    let of = |value: fn(&Loss) -> Option<f64>| loss.and_then(value);
    json!({
        "precision": name,
        "encoder_error": of(Loss::encoder_error),
        "logit_error": of(Loss::logit_error),
        "mask_iou": of(Loss::mask_iou),
        "least_iou": of(Loss::least_iou),
        "other_choices": of(Loss::other_choices),
        "detection_iou": of(Loss::detection_iou),
        "embed_ms": run.embed_ms,
        "answers_ms": run.prompt_ms,
        "memory_mib": run.memory_mib,
    })
}

/// The rows as a table, without columns that have no numbers.
pub(crate) fn table(rows: &[Value]) -> String {
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
