//! Prompts on the command line.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::Args;
use cutout_imaging::{NPY_MAGIC, Size, read_npy};
use cutout_sam::prompt_text::{self as text, parse_point, parse_rect};
use cutout_sam::{Candidates, Label, Point, Prompt, PromptError, Rect, SegmentError};
use cutout_tensor::Tensor;

use crate::failure::Usage;

mod finding;

pub(crate) use finding::FindOptions;

/// Flags of prompts.
#[derive(Args)]
#[command(next_help_heading = "What to segment")]
pub(crate) struct PromptOptions {
    /// A point in pixels from the top left corner, on the object; with a third value 0, not on the object. Repeat for more
    /// points of the same object
    #[arg(long = "point", short, value_name = "X,Y[,0|1]", value_parser = parse_point, allow_hyphen_values = true)]
    points: Vec<(Point, Label)>,
    /// A box around an object: left, top, right, bottom. Repeat for more objects
    #[arg(long = "box", short, value_name = "X0,Y0,X1,Y1", value_parser = parse_rect, allow_hyphen_values = true)]
    boxes: Vec<Rect>,
    /// Low-resolution logits of an earlier mask: a .npy file, or a file written by --raw
    #[arg(long, value_name = "FILE")]
    mask_input: Option<PathBuf>,
    /// Coordinates are fractions (0 to 1) of the picture's width and height
    #[arg(long)]
    normalized: bool,
    /// Three candidates per prompt instead of one mask. JSON and --raw hold all three, other outputs the best one
    #[arg(long)]
    multimask: bool,
}

impl PromptOptions {
    /// The prompts for a picture of `size`: one per box, or a single one with all points.
    pub(crate) fn prompts(&self, size: Size) -> Result<Vec<Prompt>> {
        if self.boxes.len() > 1 && (!self.points.is_empty() || self.mask_input.is_some()) {
            return Err(Usage::error(
                "several boxes are several objects: combine --point and --mask-input with one --box at most",
            ));
        }
        let mut prompt = Prompt::default().candidates(self.candidates());
        for (point, label) in &self.points {
            prompt = prompt.with_point(self.in_pixels(*point, size), *label);
        }
        if let Some(path) = &self.mask_input {
            prompt = prompt.with_logits(read_logits(path)?);
        }
        let boxed = |rect: &Rect| prompt.clone().with_rect(self.rect_in_pixels(*rect, size));
        let prompts: Vec<Prompt> = self.boxes.iter().map(boxed).collect();
        if prompts.is_empty() && self.points.is_empty() && self.mask_input.is_none() {
            return Err(Usage::error(
                "nothing to segment: give a --point, a --box or a --mask-input; for SAM 3 also a --text or an --exemplar",
            ));
        }
        Ok(if prompts.is_empty() { vec![prompt] } else { prompts })
    }

    /// The error of a prompt; of its mask, with the name of the file.
    pub(crate) fn named(&self, error: SegmentError) -> anyhow::Error {
        let is_mask = matches!(
            error,
            SegmentError::Prompt(PromptError::MaskShape { .. } | PromptError::MaskValue { .. })
        );
        let error = anyhow::Error::new(error);
        match &self.mask_input {
            Some(path) if is_mask => error.context(path.display().to_string()),
            Some(_) | None => error,
        }
    }

    /// Files that are read.
    pub(crate) fn files(&self) -> impl Iterator<Item = &Path> {
        self.mask_input.as_deref().into_iter()
    }

    /// Whether no flag of this group is given.
    pub(crate) fn is_empty(&self) -> bool {
        self.points.is_empty()
            && self.boxes.is_empty()
            && self.mask_input.is_none()
            && !self.multimask
    }

    fn candidates(&self) -> Candidates {
        if self.multimask { Candidates::Three } else { Candidates::One }
    }

    fn in_pixels(&self, point: Point, size: Size) -> Point {
        if !self.normalized {
            return point;
        }
        Point { x: point.x * size.width as f64, y: point.y * size.height as f64 }
    }

    fn rect_in_pixels(&self, Rect { x0, y0, x1, y1 }: Rect, size: Size) -> Rect {
        let upper = self.in_pixels(Point { x: x0, y: y0 }, size);
        let lower = self.in_pixels(Point { x: x1, y: y1 }, size);
        Rect { x0: upper.x, y0: upper.y, x1: lower.x, y1: lower.y }
    }
}

/// Parses a finite number.
pub(crate) fn parse_number(text: &str) -> Result<f32, String> {
    text::parse_number(text).map(|value| value as f32).map_err(|error| error.to_string())
}

/// Parses a number between 0 and 1.
pub(crate) fn parse_share(text: &str) -> Result<f32, String> {
    match parse_number(text)? {
        share if (0.0..=1.0).contains(&share) => Ok(share),
        _ => Err("must be between 0 and 1".to_owned()),
    }
}

/// Reads logits `f32[height, width]` from a file.
fn read_logits(path: &Path) -> Result<Tensor> {
    let tensor = if is_npy(path)? {
        let file = BufReader::new(open(path)?);
        read_npy(file).with_context(|| format!("{}: not logits of a mask", path.display()))?
    } else {
        best_of_raw(path).with_context(|| {
            format!("{}: neither a .npy file nor a file written by --raw", path.display())
        })?
    };
    // NumPy arrays of one mask often have leading axes of length 1.
    let axes: Vec<usize> = tensor.shape().iter().copied().filter(|length| *length != 1).collect();
    let [height, width] = axes[..] else {
        bail!("{}: expected logits of one mask, got {}", path.display(), tensor.ty());
    };
    tensor.expect_finite().with_context(|| format!("{}: not logits of a mask", path.display()))?;
    Ok(tensor.reshape([height, width])?)
}

/// Whether a file starts with NumPy's magic number.
fn is_npy(path: &Path) -> Result<bool> {
    let mut start = [0; NPY_MAGIC.len()];
    Ok(open(path)?.read_exact(&mut start).is_ok() && start == NPY_MAGIC)
}

fn open(path: &Path) -> Result<File> {
    File::open(path).with_context(|| path.display().to_string())
}

/// Logits of the candidate with the highest predicted IoU, of the first prompt in a file written by `--raw`.
fn best_of_raw(path: &Path) -> Result<Tensor> {
    let file = cutout_weights::Checkpoint::open(path)?;
    let logits = file.tensor("low_res_logits")?;
    let iou = file.tensor("iou")?.slice(0, 0..1)?.to_vec::<f32>()?;
    let mut best = 0;
    for (index, value) in iou.iter().enumerate() {
        if *value > iou[best] {
            best = index;
        }
    }
    Ok(logits.slice(0, 0..1)?.slice(1, best..best + 1)?)
}
