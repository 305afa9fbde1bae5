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

use crate::interrupt;
use crate::output::{check_extension, check_folder};

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
    /// Returns an error if an extension is unknown or the folder of an output does not exist.
    pub(super) fn check(&self) -> Result<()> {
        self.output.iter().try_for_each(|path| check_extension(path, &["jsonl", "json"]))?;
        self.output
            .iter()
            .chain(&self.overlay)
            .chain(&self.raw)
            .try_for_each(|path| check_folder(path))
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

    /// Names of the default outputs, if they are used.
    pub(super) fn usual_names(&self, video: &Path) -> Option<String> {
        let [masks, overlay] = Self::usual(video);
        self.is_empty().then(|| format!("{}/ and {}", masks.display(), overlay.display()))
    }

    /// Opens all outputs.
    pub(super) fn open(&self, video: &Path, rate: Option<f64>, tools: &Tools) -> Result<Writers> {
        let usual = Self::usual(video);
        let (masks, overlay) = if self.is_empty() {
            (std::slice::from_ref(&usual[0]), Some(&usual[1]))
        } else {
            (&self.output[..], self.overlay.as_ref())
        };
        let mut sinks: Vec<Box<dyn Sink>> = Vec::new();
        for path in masks {
            interrupt::writes_beside(path);
            if path.extension().is_some_and(|extension| extension == "jsonl" || extension == "json")
            {
                sinks.push(Box::new(JsonLines::create(path)?));
            } else {
                interrupt::writes_beside(&path.join("00000.png"));
                sinks.push(Box::new(LabelPictures::create(path)?));
            }
        }
        if let Some(path) = overlay {
            let frame_rate = rate.filter(|rate| *rate > 0.0).unwrap_or(USUAL_RATE);
            sinks.push(open_overlay(path, &OverlayOptions { frame_rate, tools: tools.clone() })?);
        }
        let raw = self.raw.as_ref().map(FrameFolder::create).transpose()?;
        if let Some(folder) = &raw {
            interrupt::writes_beside(&raw_file(folder, 0));
        }
        Ok(Writers { sinks, raw })
    }
}

impl Writers {
    /// Writes one frame.
    pub(super) fn write(&mut self, frame: &FrameResult<'_>, tracked: &TrackedFrame) -> Result<()> {
        for sink in &mut self.sinks {
            sink.write(frame)?;
        }
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
    Ok(write_safetensors(raw_file(folder, tracked.frame), &tensors, &Metadata::new())?)
}

/// Path of the tensors of a frame.
fn raw_file(folder: &FrameFolder, frame: usize) -> PathBuf {
    folder.file(frame, "safetensors")
}
