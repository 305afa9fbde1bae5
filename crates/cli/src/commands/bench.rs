//! `cutout bench`: times of each stage on this machine.

use std::cell::Cell;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::Result;
use clap::Args;
use cutout_imaging::{
    DecodeLimits, Image, MaskDepth, Size, decode, encode_image, encode_mask, write,
};
use cutout_sam::{Precision, Profile, Prompt, Sam, Scene, TrackOptions, device};
use serde_json::{Map, Value, json};

use crate::options::{ModelOption, ModelSource, RunOptions};
use crate::progress::Progress;
use crate::{format, memory, stdio};

mod clip;
mod samples;

use clip::Clip;
use samples::Samples;

/// Time every stage from picture to mask: the first (cold) run and warm runs
#[derive(Args)]
#[command(after_help = "Examples:
  cutout bench --model sam_vit_b_01ec64.pth
  cutout bench --model sam_vit_b_01ec64.pth --image truck.jpg --repeat 9 --json
  cutout bench --model sam2.1_hiera_tiny.pt --track frames
  cutout bench --model sam3.pt --image street.jpg --text \"yellow bus\" --track street.mp4
  cutout bench --model sam_vit_b_01ec64.pth --precision all

Times are medians of warm runs in milliseconds. A spread is the interquartile range, in percent of
the median.")]
pub(crate) struct Bench {
    #[command(flatten)]
    model: ModelOption,
    /// Picture; by default a generated one of 1800 by 1200 pixels
    #[arg(long, value_name = "IMAGE")]
    image: Option<PathBuf>,
    /// Also time a tracked frame with full memory: through a clip that `cutout track` reads, or this number of generated
    /// frames. The clip is repeated as needed
    #[arg(long, value_name = "FRAMES")]
    track: Option<PathBuf>,
    /// Also time finding a phrase in the embedded picture (SAM 3); with --track, also frames that are searched for it and for a
    /// second phrase
    #[arg(long, value_name = "PHRASE")]
    text: Option<String>,
    /// Number of warm runs of each stage
    #[arg(long, value_name = "N", default_value = "5", value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeat: u32,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    run: RunOptions,
}

/// Points decoded in one batch.
const MANY_POINTS: usize = 64;

impl Bench {
    pub(crate) fn run(self) -> Result<()> {
        let source = self.model.source()?;
        let image = self.picture()?;
        let mut reports = Vec::new();
        for precision in self.run.precisions() {
            let profile = self.run.profile_in(precision, source.file())?;
            reports.push(self.measure(&source, &profile, &image)?);
        }
        let values: Vec<&Map<String, Value>> =
            reports.iter().map(|report| &report.values).collect();
        match (&reports[..], self.json) {
            ([report], true) => stdio::print_json(&report.values),
            ([report], false) => stdio::print(&report.table()),
            (_, true) => stdio::print_json(&json!({ "precisions": values })),
            (_, false) => stdio::print(&side_by_side(&values)),
        }
    }

    /// Times every stage with one profile.
    fn measure(&self, source: &ModelSource, profile: &Profile, image: &Image) -> Result<Report> {
        memory::reset_peak();
        let progress = Progress::spinner("opening the model");
        let mut clip = self.track.as_deref().map(Clip::open).transpose()?;
        let mut report = Report::default();
        let sam = report.opening(self.repeat, || source.open(profile.clone()))?;
        self.check(&sam, image)?;
        progress.say("decoding and encoding files");
        self.files(image, &mut report)?;
        progress.say(format!("{}: encoding the picture", sam.description()));
        let scene = self.embedding(&sam, image, &mut report)?;
        progress.say("prompts");
        if sam.answers_clicks() {
            self.prompts(&scene, &mut report)?;
        }
        if let Some(phrase) = &self.text {
            progress.say("phrases");
            self.phrases(&scene, phrase, &mut report)?;
        }
        drop(scene);
        if let Some(clip) = &mut clip {
            progress.say("tracking");
            report.add("track_frame", &clip::track(&sam, clip, self.repeat)?);
            if let Some(phrase) = &self.text {
                progress.say("phrases in video");
                self.phrases_in_video(&sam, clip, phrase, &mut report)?;
            }
        }
        drop(progress);
        report.facts(&sam);
        Ok(report)
    }

    /// Returns an error before anything is timed if the model cannot do what is asked.
    fn check(&self, sam: &Sam, image: &Image) -> Result<()> {
        if let Some(phrase) = &self.text {
            sam.check_find(&phrase.as_str().into(), image.size())?;
        }
        if self.track.is_some() {
            sam.track(TrackOptions::default())?;
        }
        Ok(())
    }

    fn picture(&self) -> Result<Image> {
        let Some(path) = &self.image else {
            return crate::picture::drawn(Size::new(1800, 1200), 0);
        };
        Ok(crate::picture::open(path)?)
    }

    /// Times decoding a picture and writing a mask.
    fn files(&self, image: &Image, report: &mut Report) -> Result<()> {
        let bytes = match &self.image {
            Some(path) => std::fs::read(path)?,
            None => encode_image(image)?,
        };
        let limits = DecodeLimits::default();
        report.warm("decode", self.repeat, || Ok(decode(&bytes, "picture", &limits).map(drop)?))?;
        let mask = cutout_imaging::Mask::empty(image.size())?;
        let path = std::env::temp_dir().join(format!("cutout-bench-{}.png", std::process::id()));
        let written = report.warm("write", self.repeat, || {
            Ok(write(&path, &encode_mask(&mask, MaskDepth::Byte)?)?)
        });
        // Errors are ignored: the file is in the temporary folder.
        let _ignored = std::fs::remove_file(&path);
        written
    }

    fn embedding(&self, sam: &Sam, image: &Image, report: &mut Report) -> Result<Scene> {
        report.warm("resize", self.repeat, || Ok(sam.preprocess(image).map(drop)?))?;
        let scene = report.cold("embed", || Ok(sam.embed(image)?))?;
        report.warm("embed", self.repeat, || {
            drop(sam.embed(image)?);
            Ok(sam.synchronize()?)
        })?;
        let mut encode = Samples::default();
        sam.time_encoder(image, self.repeat)?.into_iter().for_each(|time| encode.push(time));
        report.add("encode", &encode);
        Ok(scene)
    }

    fn prompts(&self, scene: &Scene, report: &mut Report) -> Result<()> {
        let click = at(scene.size(), 0.4, 0.6);
        let masks = report.cold("prompt", || Ok(scene.segment(&click)?))?;
        // A click takes milliseconds, so more runs are cheap and reduce noise.
        let often = self.repeat.saturating_mul(4);
        report.warm("prompt", often, || Ok(scene.segment(&click).map(drop)?))?;
        report.warm("upsample", often, || {
            masks.best().rle()?;
            Ok(())
        })?;
        let side = MANY_POINTS.isqrt();
        let share = |i: usize| (i as f64 + 0.5) / side as f64;
        let point = |i| at(scene.size(), share(i % side), share(i / side));
        let grid: Vec<Prompt> = (0..MANY_POINTS).map(point).collect();
        report.cold("points64", || Ok(scene.segment_all(&grid).map(drop)?))?;
        report.warm("points64", self.repeat, || Ok(scene.segment_all(&grid).map(drop)?))
    }

    /// Times frames that are searched for a phrase, and for two.
    fn phrases_in_video(
        &self,
        sam: &Sam,
        clip: &mut Clip,
        phrase: &str,
        report: &mut Report,
    ) -> Result<()> {
        let second = variant(phrase, 0);
        let times = clip::track_phrase(sam, clip, [phrase, &second], self.repeat)?;
        report.add("track_text", &times.one);
        report.add("track_text2", &times.two);
        report.put("track_text_objects", times.objects as f64);
        Ok(())
    }

    /// Times finding a phrase. The first run also computes the features that all phrases share; later runs use new phrases.
    fn phrases(&self, scene: &Scene, phrase: &str, report: &mut Report) -> Result<()> {
        let asked = Cell::new(0);
        let find = || {
            asked.set(asked.get() + 1);
            Ok(scene.find(variant(phrase, asked.get()).as_str()).map(drop)?)
        };
        report.cold("find", find)?;
        report.warm("find", self.repeat, find)
    }
}

/// Stages of several precisions, one column each, with the factor over the first.
fn side_by_side(reports: &[&Map<String, Value>]) -> String {
    let mut rows = vec![vec![String::new()]];
    for report in reports {
        rows[0].push(report.get("precision").and_then(Value::as_str).unwrap_or("").to_owned());
    }
    let stages = reports.first().into_iter().flat_map(|report| report.keys());
    for key in stages.filter(|key| key.ends_with("_ms") || *key == "peak_rss_mib") {
        let numbers: Vec<f64> =
            reports.iter().filter_map(|report| report.get(key)?.as_f64()).collect();
        let Some(&first) = numbers.first() else { continue };
        let name =
            key.strip_suffix("_ms").map_or("peak MiB".to_owned(), |stage| format!("{stage} ms"));
        let cell = |&number: &f64| format!("{number:.1} ({:.2}×)", first / number);
        let cells = numbers.iter().skip(1).map(cell);
        rows.push([name, format!("{first:.1}")].into_iter().chain(cells).collect());
    }
    format::table(&rows)
}

/// The phrase followed by two letters: distinct for each number, with the same number of tokens.
fn variant(phrase: &str, number: usize) -> String {
    let letter = |index: usize| char::from(b'a' + (index % 26) as u8);
    format!("{phrase} {} {}", letter(number / 26), letter(number))
}

/// A point at fractions of the picture's width and height.
fn at(size: Size, x: f64, y: f64) -> Prompt {
    Prompt::point(x * size.width as f64, y * size.height as f64)
}

/// Measurements in the order of the stages.
#[derive(Default)]
struct Report {
    values: Map<String, Value>,
    lines: Vec<String>,
}

impl Report {
    /// Opens the model up to three times and returns the last one. `load` is the time to open it, `compile` the time until it
    /// is ready to run.
    fn opening(&mut self, repeat: u32, open: impl Fn() -> Result<Sam>) -> Result<Sam> {
        let (mut load, mut compile) = (Samples::default(), Samples::default());
        let mut kept = None;
        for _ in 0..repeat.min(3) {
            drop(kept.take());
            let sam = load.time(&open)?;
            compile.time(|| Ok(sam.prepare()?))?;
            kept = Some(sam);
        }
        self.add("load", &load);
        self.add("compile", &compile);
        Ok(kept.expect("it was opened at least once"))
    }

    /// Times one run without a warm-up.
    fn cold<T>(&mut self, stage: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let start = Instant::now();
        let result = work()?;
        self.put(&format!("{stage}_cold_ms"), start.elapsed().as_secs_f64() * 1e3);
        Ok(result)
    }

    fn warm(&mut self, stage: &str, repeat: u32, work: impl Fn() -> Result<()>) -> Result<()> {
        let mut samples = Samples::default();
        for _ in 0..repeat {
            samples.time(&work)?;
        }
        self.add(stage, &samples);
        Ok(())
    }

    fn add(&mut self, stage: &str, samples: &Samples) {
        self.put(&format!("{stage}_ms"), samples.median());
        self.put(&format!("{stage}_ms_spread"), samples.spread());
        let (median, percent) = (samples.median(), 100.0 * samples.spread());
        let cold = self.values.get(&format!("{stage}_cold_ms")).and_then(Value::as_f64);
        let cold = cold.map_or(String::new(), |cold| format!("   first {cold:.1} ms"));
        self.lines.push(format!("{stage:<11} {median:>10.1} ms ± {percent:.0} %{cold}"));
    }

    fn put(&mut self, key: &str, value: f64) {
        // Rounded to microseconds, about the accuracy of the clock.
        self.values.insert(key.to_owned(), json!((value * 1e3).round() / 1e3));
    }

    fn facts(&mut self, sam: &Sam) {
        if let Some(peak) = memory::peak_mib() {
            self.put("peak_rss_mib", peak);
            self.lines.push(format!("{:<11} {peak:>10.0} MiB peak resident", "memory"));
        }
        let precision = match sam.profile().precision {
            Precision::Auto if sam.device().starts_with("cpu") => "f32",
            Precision::Auto => "f16 encoder, f32 decoder",
            Precision::F32 => "f32",
            Precision::F16 => "f16",
            Precision::Bf16 => "bf16",
            Precision::Int8 => "int8",
        };
        let facts = [
            ("threads", json!(device::threads(sam.profile()))),
            ("device", json!(sam.device())),
            ("precision", json!(precision)),
            ("model", json!(sam.description())),
        ];
        for (key, value) in facts {
            self.lines.push(format!("{key:<11} {}", value.to_string().trim_matches('"')));
            self.values.insert(key.to_owned(), value);
        }
    }

    fn table(&self) -> String {
        self.lines.join("\n")
    }
}
