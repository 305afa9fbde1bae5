//! Output of the masks of a video.

use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::Args;
use cutout_sam::TrackedFrame;
use cutout_tensor::Tensor;
use cutout_video::{
    FrameFolder, FrameResult, JsonLines, LabelPictures, OverlayOptions, Sink, Tools, open_overlay,
};
use cutout_weights::{Metadata, OutgoingTensor, write_safetensors};

use super::resume::Position;
use crate::claims::Claims;
use crate::failure::Usage;
use crate::output::check_extension;
use crate::stdio;

/// Frames per second of an overlay if the source has no frame rate.
const USUAL_RATE: f64 = 25.0;

/// Flags of outputs.
#[derive(Args)]
#[command(next_help_heading = "Output")]
pub(super) struct TrackOutputs {
    /// Write the masks: to a folder, one palette PNG per frame as in DAVIS; to a .jsonl file, run lengths. Repeat for more
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
    sinks: Vec<Box<dyn Sink>>,
    raw: Option<FrameFolder>,
}

impl TrackOutputs {
    /// Adds the outputs for a video to `claims`.
    pub(super) fn claim(&self, claims: &mut Claims, video: &Path, resume: bool) -> Result<()> {
        if let Some(path) = self.overlay.as_ref().filter(|path| resume && !is_folder(path)) {
            let path = path.display();
            return Err(Usage::error(format!(
                "{path}: --resume goes on with folders and .jsonl files only; give the overlay a folder"
            )));
        }
        self.output.iter().try_for_each(|path| check_extension(path, &["jsonl", "json"]))?;
        if self.is_empty() {
            let [masks, overlay] = Self::usual(video);
            claims.writes_into(&masks, |name| is_frame(name, "png"))?;
            return claims.writes_unnamed(&overlay);
        }
        for path in &self.output {
            if is_json_lines(path) {
                claims.writes(path)?
            } else {
                claim_frames(claims, path, "png")?
            }
        }
        if let Some(path) = &self.overlay {
            if is_folder(path) {
                claim_frames(claims, path, "png")?
            } else {
                claims.writes(path)?
            }
        }
        self.raw.as_ref().map_or(Ok(()), |path| claim_frames(claims, path, RAW))
    }

    /// Whether tensors are asked for.
    pub(super) fn has_raw(&self) -> bool {
        self.raw.is_some()
    }

    fn is_empty(&self) -> bool {
        self.output.is_empty() && self.overlay.is_none() && self.raw.is_none()
    }

    /// The default outputs: a folder of masks and an overlay in the current folder, named after the video.
    fn usual(video: &Path) -> [PathBuf; 2] {
        let stem = video.file_stem().filter(|stem| *stem != "-");
        let stem = stem.map_or("video".into(), |stem| stem.to_string_lossy());
        [PathBuf::from(format!("{stem}.masks")), PathBuf::from(format!("{stem}.overlay.gif"))]
    }

    /// The output beside which the state of a run is kept.
    pub(super) fn first(&self, video: &Path) -> PathBuf {
        let mut named = self.output.iter().chain(&self.raw).chain(&self.overlay);
        named.next().cloned().unwrap_or_else(|| Self::usual(video)[0].clone())
    }

    /// Notes which files end early.
    pub(super) fn note_partial(&self, video: &Path, frame: usize) {
        let usual = Self::usual(video);
        let usual = self.is_empty().then_some(&usual[1]);
        let lines = self.output.iter().filter(|path| is_json_lines(path));
        let overlay = self.overlay.iter().filter(|path| !is_folder(path));
        for path in lines.chain(overlay).chain(usual) {
            stdio::note(&format!("{}: partial, up to frame {frame}", path.display()));
        }
    }

    /// Notes what was written.
    pub(super) fn note_written(&self, video: &Path) {
        if self.is_empty() {
            return stdio::note_written(false, Self::usual(video).iter().map(PathBuf::as_path));
        }
        let paths = self.output.iter().chain(&self.overlay).chain(&self.raw);
        stdio::note_written(true, paths.map(PathBuf::as_path));
    }

    /// Opens all outputs, those of a run that goes on after `position` for what follows.
    pub(super) fn open(
        &self,
        video: &Path,
        rate: Option<f64>,
        tools: &Tools,
        position: Option<Position>,
    ) -> Result<Writers> {
        let usual = Self::usual(video);
        let (masks, overlay) = if self.is_empty() {
            // The overlay of a run that broke off stays as it is.
            (std::slice::from_ref(&usual[0]), Some(&usual[1]).filter(|_| position.is_none()))
        } else {
            (&self.output[..], self.overlay.as_ref())
        };
        let mut sinks: Vec<Box<dyn Sink>> = Vec::new();
        for path in masks {
            sinks.push(match is_json_lines(path) {
                true => Box::new(JsonLines::after(path, position.map_or(0, |done| done.done))?),
                false => Box::new(LabelPictures::create(path)?),
            });
        }
        if let Some(path) = overlay {
            let frame_rate = rate.filter(|rate| *rate > 0.0).unwrap_or(USUAL_RATE);
            sinks.push(open_overlay(path, &OverlayOptions { frame_rate, tools: tools.clone() })?);
        }
        let raw = self.raw.as_ref().map(FrameFolder::create).transpose()?;
        Ok(Writers { sinks, raw })
    }
}

impl Writers {
    /// Writes one frame without tensors.
    pub(super) fn write_masks(&mut self, frame: &FrameResult<'_>) -> Result<()> {
        Ok(self.sinks.iter_mut().try_for_each(|sink| sink.write(frame))?)
    }

    /// Writes one frame.
    pub(super) fn write(&mut self, frame: &FrameResult<'_>, tracked: &TrackedFrame) -> Result<()> {
        self.write_masks(frame)?;
        match &self.raw {
            Some(folder) => write_raw(folder, tracked),
            None => Ok(()),
        }
    }

    /// Completes all files and returns the first error.
    pub(super) fn finish(self) -> Result<()> {
        let results: Vec<_> = self.sinks.into_iter().map(|sink| sink.finish()).collect();
        Ok(results.into_iter().collect::<Result<(), _>>()?)
    }
}

fn is_folder(path: &Path) -> bool {
    path.is_dir() || path.extension().is_none()
}

fn is_json_lines(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "jsonl" || extension == "json")
}

fn claim_frames(claims: &mut Claims, folder: &Path, extension: &str) -> Result<()> {
    claims.writes_into(folder, |name| is_frame(name, extension))
}

/// Whether a file name is that of a frame, such as `00007.png`.
fn is_frame(name: &str, extension: &str) -> bool {
    let number = name.strip_suffix(extension).and_then(|name| name.strip_suffix('.'));
    number.is_some_and(|digits| digits.len() >= 5 && digits.bytes().all(|b| b.is_ascii_digit()))
}

/// Extension of files of tensors.
const RAW: &str = "safetensors";

/// Writes `low_res_logits [objects, 1, h, w]`, `object_score [objects]` and `object_ids [objects]` of one frame.
fn write_raw(folder: &FrameFolder, tracked: &TrackedFrame) -> Result<()> {
    let objects = &tracked.objects;
    let side = objects.first().map_or(0, |object| object.segment.logits().shape()[0]);
    let mut logits = Vec::new();
    for object in objects {
        logits.extend(object.segment.logits().to_vec::<f32>()?);
    }
    let count = objects.len();
    let scores = objects.iter().map(|object| object.segment.object_score().unwrap_or(0.0));
    let ids = objects.iter().map(|object| i64::from(object.id));
    let tensors = [
        ("low_res_logits", Tensor::from_vec::<f32>([count, 1, side, side], logits)?),
        ("object_score", Tensor::from_vec::<f32>([count], scores.collect())?),
        ("object_ids", Tensor::from_vec::<i64>([count], ids.collect())?),
    ];
    let tensors = tensors.map(|(name, tensor)| OutgoingTensor::new(name, tensor));
    let metadata = Metadata::from([("software".to_owned(), cutout_files::SOFTWARE.into())]);
    Ok(write_safetensors(raw_file(folder, tracked.frame), &tensors, &metadata)?)
}

/// Path of the tensors of a frame.
fn raw_file(folder: &FrameFolder, frame: usize) -> PathBuf {
    folder.file(frame, RAW)
}
