//! Output of the masks of a video.

use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::Args;
use cutout_sam::{ObjectId, PhraseFrame, PhraseObject, TakenBack, TrackedFrame, TrackedObject};
use cutout_tensor::Tensor;
use cutout_video::{
    FrameFolder, FrameResult, JsonLines, LabelPictures, MotText, OverlayOptions, Sink, Tools,
    VideoJson, open_overlay,
};
use cutout_weights::{Metadata, OutgoingTensor, write_safetensors};

use crate::claims::Claims;
use crate::failure::Usage;
use crate::output::{check_extension, names_folder};
use crate::stdio;

/// Frames per second of an overlay if the source has no frame rate.
const USUAL_RATE: f64 = 25.0;

/// Flags of outputs.
#[derive(Args)]
#[command(next_help_heading = "Output")]
pub(super) struct TrackOutputs {
    /// Write the masks: to a folder, one palette PNG per frame as in DAVIS; to a .jsonl file, run lengths of each frame; to a
    /// .json file, run lengths of each object as in YouTube-VIS; to a .txt file, boxes as in the MOT Challenge. Repeat for more
    /// outputs
    #[arg(long, short, value_name = "PATH")]
    output: Vec<PathBuf>,
    /// Write the video with the masks drawn over it: .gif; .mp4, .mov, .mkv or .webm (need ffmpeg); or a folder of PNG files
    #[arg(long, value_name = "PATH")]
    overlay: Option<PathBuf>,
    /// Write the model's output tensors, one safetensors file per frame: low_res_logits, object_score, object_ids
    #[arg(long, value_name = "FOLDER")]
    raw: Option<PathBuf>,
}

/// The open outputs.
pub(super) struct Writers {
    masks: Vec<Box<dyn Sink>>,
    overlay: Option<Box<dyn Sink>>,
    raw: Option<FrameFolder>,
}

/// Where the results of a run go: the paths that the user named, or those made up.
pub(super) struct Places {
    masks: Vec<PathBuf>,
    overlay: Option<PathBuf>,
    raw: Option<PathBuf>,
    /// Whether the paths were made up.
    are_usual: bool,
    /// Name of the video.
    video: String,
}

/// Layout of masks.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Layout {
    /// A folder of palette PNGs.
    Pictures,
    JsonLines,
    VideoJson,
    MotText,
}

impl Layout {
    /// By the extension of a path.
    fn of(path: &Path) -> Self {
        match path.extension().map(|it| it.to_string_lossy().to_lowercase()).as_deref() {
            _ if path.is_dir() || names_folder(path) => Layout::Pictures,
            Some("jsonl") => Layout::JsonLines,
            Some("json") => Layout::VideoJson,
            Some("txt") => Layout::MotText,
            Some(_) | None => Layout::Pictures,
        }
    }
}

impl TrackOutputs {
    /// Where the results for a video go; by default to a folder of masks and an overlay in the current folder, named after
    /// the video.
    pub(super) fn places(&self, video: &Path) -> Places {
        let stem = video.file_stem().filter(|stem| *stem != "-");
        let stem = stem.map_or("video".into(), |stem| stem.to_string_lossy());
        let named = Places {
            masks: self.output.clone(),
            overlay: self.overlay.clone(),
            raw: self.raw.clone(),
            are_usual: false,
            video: stem.to_string(),
        };
        if !self.output.is_empty() || self.overlay.is_some() || self.raw.is_some() {
            return named;
        }
        Places {
            masks: vec![PathBuf::from(format!("{stem}.masks"))],
            overlay: Some(PathBuf::from(format!("{stem}.overlay.gif"))),
            are_usual: true,
            ..named
        }
    }
}

impl Places {
    /// Adds the outputs to `claims`.
    pub(super) fn claim(&self, claims: &mut Claims) -> Result<()> {
        if !self.are_usual {
            self.masks.iter().try_for_each(|path| check_masks(path))?;
        }
        for path in self.masks.iter().filter(|path| Layout::of(path) != Layout::Pictures) {
            claims.writes(path)?;
        }
        for (folder, extension) in self.folders() {
            check_folder(folder, extension)?;
            claims.writes_into(folder, |name| frame_number(name, extension).is_some())?;
        }
        match self.overlay_file() {
            Some(path) if self.are_usual => claims.writes_unnamed(path),
            Some(path) => claims.writes(path),
            None => Ok(()),
        }
    }

    /// Returns an error for objects that the palette PNGs of a folder cannot hold.
    pub(super) fn check_objects(&self, mut objects: impl Iterator<Item = ObjectId>) -> Result<()> {
        let has_pictures = self.masks.iter().any(|path| Layout::of(path) == Layout::Pictures);
        match objects.find(|object| has_pictures && !(1..=255).contains(object)) {
            None => Ok(()),
            Some(object) => Err(Usage::error(format!(
                "object {object}: palette PNGs hold objects 1 to 255; give other numbers, or write the masks to a .jsonl file"
            ))),
        }
    }

    /// Returns an error if a run that breaks off cannot go on.
    pub(super) fn check_resume(&self) -> Result<()> {
        let whole =
            |path: &&PathBuf| matches!(Layout::of(path), Layout::VideoJson | Layout::MotText);
        if let Some(path) = self.masks.iter().find(whole) {
            return Err(Usage::error(format!(
                "{}: --resume continues .jsonl files and folders, no .json and .txt files",
                path.display()
            )));
        }
        match self.overlay_file() {
            Some(path) if self.masks.is_empty() => Err(Usage::error(format!(
                "{}: --resume draws the overlay anew from the masks, and none are written: add an --output, or give the overlay a folder",
                path.display()
            ))),
            Some(_) | None => Ok(()),
        }
    }

    /// The folders with one file per frame, and the extension of the files.
    pub(super) fn folders(&self) -> impl Iterator<Item = (&Path, &'static str)> {
        let masks = self.masks.iter().filter(|path| Layout::of(path) == Layout::Pictures);
        let overlay = self.overlay.iter().filter(|path| is_folder(path));
        let pictures = masks.chain(overlay).map(|path| (path.as_path(), FrameFolder::PICTURE));
        pictures.chain(self.raw.iter().map(|path| (path.as_path(), RAW)))
    }

    /// The files with one line per frame.
    pub(super) fn line_files(&self) -> impl Iterator<Item = &Path> {
        self.masks.iter().map(PathBuf::as_path).filter(|path| Layout::of(path) == Layout::JsonLines)
    }

    /// The overlay, if it is one file. It cannot be continued.
    pub(super) fn overlay_file(&self) -> Option<&Path> {
        self.overlay.as_deref().filter(|path| !is_folder(path))
    }

    /// The masks that an overlay in one file is drawn from when a run goes on. Lines have all pixels of all objects, palette
    /// PNGs one object per pixel.
    pub(super) fn readable_masks(&self) -> Option<&Path> {
        self.line_files().next().or(self.masks.first().map(PathBuf::as_path))
    }

    /// Whether tensors are written.
    pub(super) fn has_raw(&self) -> bool {
        self.raw.is_some()
    }

    /// The output beside which the state of a run is kept.
    pub(super) fn first(&self) -> &Path {
        let mut paths = self.masks.iter().chain(&self.raw).chain(&self.overlay);
        paths.next().map_or(Path::new("video"), PathBuf::as_path)
    }

    /// Notes which files end early.
    pub(super) fn note_partial(&self, frame: usize) {
        let files = self.masks.iter().filter(|path| Layout::of(path) != Layout::Pictures);
        for path in files.map(PathBuf::as_path).chain(self.overlay_file()) {
            stdio::note(&format!("{}: partial, up to frame {frame}", path.display()));
        }
    }

    /// Notes what was written.
    pub(super) fn note_written(&self) {
        let paths = self.masks.iter().chain(&self.overlay).chain(&self.raw);
        stdio::note_written(!self.are_usual, paths.map(PathBuf::as_path));
    }

    /// Opens all outputs, those of a run that goes on after `done` frames for what follows. An overlay in one file begins
    /// anew.
    pub(super) fn open(&self, done: usize, overlay: &OverlayOptions) -> Result<Writers> {
        let mut masks: Vec<Box<dyn Sink>> = Vec::new();
        for path in &self.masks {
            masks.push(match Layout::of(path) {
                Layout::JsonLines => Box::new(JsonLines::after(path, done)?),
                Layout::Pictures => Box::new(LabelPictures::create(path)?),
                Layout::VideoJson => Box::new(VideoJson::create(path, &self.video)?),
                Layout::MotText => Box::new(MotText::create(path)?),
            });
        }
        let overlay = self.overlay.as_ref().map(|path| open_overlay(path, overlay)).transpose()?;
        let raw = self.raw.as_ref().map(FrameFolder::create).transpose()?;
        Ok(Writers { masks, overlay, raw })
    }
}

impl Writers {
    /// Writes the masks of one frame.
    pub(super) fn write_masks(&mut self, frame: &FrameResult<'_>) -> Result<()> {
        self.masks.iter_mut().try_for_each(|sink| sink.write(frame))?;
        self.draw(frame)
    }

    /// Writes one frame.
    pub(super) fn write(&mut self, frame: &FrameResult<'_>, tracked: &TrackedFrame) -> Result<()> {
        self.write_masks(frame)?;
        let object = |object: &TrackedObject| RawObject {
            id: object.id,
            logits: object.segment.logits().clone(),
            score: object.segment.object_score().unwrap_or(0.0),
        };
        self.write_raw(tracked.frame, tracked.objects.iter().map(object).collect())
    }

    /// Writes one frame with the objects of phrases.
    pub(super) fn write_phrases(
        &mut self,
        frame: &FrameResult<'_>,
        answer: &PhraseFrame,
    ) -> Result<()> {
        self.write_masks(frame)?;
        let object = |object: &PhraseObject| {
            // A new object was not followed yet: its score is that of its detection.
            let logit = (object.probability / (1.0 - object.probability)).ln();
            let score = object.object_score.unwrap_or(logit);
            Some(RawObject { id: object.id, logits: object.logits.clone()?, score })
        };
        self.write_raw(answer.frame, answer.objects.iter().filter_map(object).collect())
    }

    /// An object of earlier frames turned out to be none.
    pub(super) fn take_back(&mut self, taken: &TakenBack) -> Result<()> {
        let TakenBack { id, first, last } = *taken;
        let sinks = self.masks.iter_mut().chain(&mut self.overlay);
        for sink in sinks {
            sink.take_back(id, first, last)?;
        }
        Ok(())
    }

    fn write_raw(&self, frame: usize, objects: Vec<RawObject>) -> Result<()> {
        match &self.raw {
            Some(folder) => write_raw(folder, frame, &objects),
            None => Ok(()),
        }
    }

    /// Writes one frame to the overlay only.
    pub(super) fn draw(&mut self, frame: &FrameResult<'_>) -> Result<()> {
        Ok(self.overlay.as_mut().map_or(Ok(()), |sink| sink.write(frame))?)
    }

    /// Completes all files and returns the first error.
    pub(super) fn finish(self) -> Result<()> {
        let sinks = self.masks.into_iter().chain(self.overlay);
        let results: Vec<_> = sinks.map(|sink| sink.finish()).collect();
        Ok(results.into_iter().collect::<Result<(), _>>()?)
    }
}

/// How an overlay is written.
pub(super) fn overlay_options(frame_rate: Option<f64>, tools: Tools) -> OverlayOptions {
    let frame_rate = frame_rate.filter(|rate| *rate > 0.0).unwrap_or(USUAL_RATE);
    OverlayOptions { frame_rate, tools }
}

fn is_folder(path: &Path) -> bool {
    path.is_dir() || path.extension().is_none()
}

/// Returns an error unless masks can be written to a path of this name.
fn check_masks(path: &Path) -> Result<()> {
    check_extension(path, &["jsonl", "json", "txt"])
}

/// Returns an error if something else has the name of a folder for files with this extension.
fn check_folder(path: &Path, extension: &str) -> Result<()> {
    if path.is_dir() || !path.exists() {
        return Ok(());
    }
    let path = path.display();
    Err(Usage::error(format!(
        "{path}: exists and is not a folder: the results of the frames, 00000.{extension}, ..., need one. Files with the masks of all frames end in .jsonl, .json or .txt"
    )))
}

/// The frame of a file, from its name such as `00007.png`.
pub(super) fn frame_number(name: &str, extension: &str) -> Option<usize> {
    let digits = name.strip_suffix(extension)?.strip_suffix('.')?;
    let number = digits.parse().ok()?;
    (format!("{number:05}") == digits).then_some(number)
}

/// Extension of files of tensors.
const RAW: &str = "safetensors";

/// An object of a frame, as the model gives it.
struct RawObject {
    id: ObjectId,
    logits: Tensor,
    score: f32,
}

/// Writes `low_res_logits [objects, 1, h, w]`, `object_score [objects]` and `object_ids [objects]` of one frame.
fn write_raw(folder: &FrameFolder, frame: usize, objects: &[RawObject]) -> Result<()> {
    let side = objects.first().map_or(0, |object| object.logits.shape()[0]);
    let mut logits = Vec::new();
    for object in objects {
        logits.extend(object.logits.to_vec::<f32>()?);
    }
    let count = objects.len();
    let scores = objects.iter().map(|object| object.score);
    let ids = objects.iter().map(|object| i64::from(object.id));
    let tensors = [
        ("low_res_logits", Tensor::from_vec::<f32>([count, 1, side, side], logits)?),
        ("object_score", Tensor::from_vec::<f32>([count], scores.collect())?),
        ("object_ids", Tensor::from_vec::<i64>([count], ids.collect())?),
    ];
    let tensors = tensors.map(|(name, tensor)| OutgoingTensor::new(name, tensor));
    let metadata = Metadata::from([("software".to_owned(), cutout_files::SOFTWARE.into())]);
    Ok(write_safetensors(folder.file(frame, RAW), &tensors, &metadata)?)
}
