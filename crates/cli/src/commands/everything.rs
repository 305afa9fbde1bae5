//! `cutout everything`: every mask of a picture, or of all pictures in a folder.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::Args;
use cutout_imaging::{DecodeLimits, open};
use cutout_sam::{
    AutoMask, Everything as Options, EverythingError, Phase, Progress as EverythingProgress, Sam,
};

use crate::failure::{Usage, message};
use crate::options::{ModelOption, RunOptions};
use crate::progress::Progress;
use crate::screen;

mod destination;
mod knobs;

use destination::Destination;
use knobs::Knobs;

/// Find every mask of a picture, or of all pictures in a folder
#[derive(Args)]
#[command(after_help = "Examples:
  cutout everything truck.jpg --model sam_vit_b_01ec64.pth
      writes truck.masks.json and truck.overlay.png
  cutout everything truck.jpg -m sam_vit_b_01ec64.pth -o truck.json --points-per-side 16
  cutout everything photos -m sam_vit_b_01ec64.pth -o masks --convert-to-rle --resume
      masks/NAME.json for every photo that has none yet
  cutout everything photos -m sam_vit_b_01ec64.pth -o masks --overlay pictures --crop-n-layers 1
      masks/NAME/0.png, 1.png, ... and metadata.csv, and pictures/NAME.png

Knobs, their names and their defaults are those of Meta's amg.py, and so are the files.")]
pub(crate) struct Everything {
    /// A picture, or a folder of pictures
    input: PathBuf,
    #[command(flatten)]
    model: ModelOption,
    /// Where the masks go: a .json file, a .png with a number per mask, a .npy; or a folder, with a folder of PNG files and
    /// a metadata.csv for each picture
    #[arg(long, short, value_name = "PATH")]
    output: Option<PathBuf>,
    /// In a folder, write one JSON file with run lengths for each picture instead of PNG files
    #[arg(long)]
    convert_to_rle: bool,
    /// Write the picture with its masks drawn over it, as PNG; for a folder of pictures, a folder
    #[arg(long, value_name = "PATH")]
    overlay: Option<PathBuf>,
    /// Print the masks of the picture as JSON to standard output
    #[arg(long)]
    json: bool,
    /// Leave out pictures whose masks are there already
    #[arg(long)]
    resume: bool,
    #[command(flatten)]
    knobs: Knobs,
    #[command(flatten)]
    run: RunOptions,
}

impl Everything {
    pub(crate) fn run(self) -> Result<()> {
        let pictures = pictures_in(&self.input)?;
        let destination = self.destination()?;
        destination.check()?;
        let usual = self.asks_for_nothing().then(|| destination.names());
        let sam = self.model.open(&self.run)?;
        let options = self.knobs.options(sam.identity().family)?;
        let mut failed = 0;
        for (index, picture) in pictures.iter().enumerate() {
            let place = match pictures.len() {
                1 => String::new(),
                many => format!("{}/{many} ", index + 1),
            };
            if self.resume && destination.is_there(picture) {
                continue;
            }
            let result = masks_of(&sam, picture, &options, &place).and_then(|found| {
                if found.masks.is_empty() {
                    screen::note(&nothing_found(picture, &options));
                }
                destination.write(picture, &found)
            });
            match result {
                Ok(()) => {}
                // A folder is gone through to its end; what failed is told on the way and at the end.
                Err(error) if self.input.is_dir() => {
                    screen::note(&format!("error: {}", message(&error)));
                    failed += 1;
                }
                Err(error) => return Err(error),
            }
        }
        if failed > 0 {
            bail!("{failed} of {} pictures failed", pictures.len());
        }
        if let Some(names) = usual {
            screen::note(&format!("wrote {names}"));
        }
        Ok(())
    }

    fn asks_for_nothing(&self) -> bool {
        self.output.is_none() && self.overlay.is_none() && !self.json
    }

    fn destination(&self) -> Result<Destination> {
        let folder = self.input.is_dir();
        if folder && self.output.is_none() {
            return Err(Usage::error(
                "a folder of pictures needs a folder for their masks: --output",
            ));
        }
        if folder && self.json {
            return Err(Usage::error("--json is for one picture; a folder needs --output"));
        }
        if self.asks_for_nothing() {
            return Ok(Destination::usual(&self.input));
        }
        Ok(Destination {
            output: self.output.clone(),
            overlay: self.overlay.clone(),
            convert_to_rle: self.convert_to_rle,
            json: self.json,
            folder,
        })
    }
}

/// A picture and its masks.
struct Found {
    image: cutout_imaging::Image,
    masks: Vec<AutoMask>,
}

fn masks_of(sam: &Sam, picture: &Path, options: &Options, place: &str) -> Result<Found> {
    let image = open(picture, &DecodeLimits::default())?;
    let bar = Progress::bar(0, format!("{place}{}", picture.display()));
    let mut report = |progress: EverythingProgress| {
        bar.set_length(progress.points as u64);
        bar.set(progress.points_done as u64);
        let what = match progress.phase {
            Phase::Embedding => "looking".to_owned(),
            Phase::Decoding => format!("{} masks", progress.masks),
            Phase::Cleaning => "small regions".to_owned(),
        };
        bar.say(format!("{place}{}: {what}", picture.display()));
        ControlFlow::Continue(())
    };
    match sam.everything(&image, options, &mut report) {
        Ok(masks) => Ok(Found { image, masks }),
        Err(EverythingError::Option(error)) => Err(Usage::error(error.to_string())),
        Err(error) => Err(error).with_context(|| picture.display().to_string()),
    }
}

/// What to do about a picture without masks.
fn nothing_found(picture: &Path, options: &Options) -> String {
    format!(
        "{}: no mask passed --pred-iou-thresh {} and --stability-score-thresh {}; lower ones let more through",
        picture.display(),
        options.pred_iou_thresh,
        options.stability_score_thresh
    )
}

/// The picture itself, or the pictures of a folder in the order of their names.
fn pictures_in(input: &Path) -> Result<Vec<PathBuf>> {
    if !input.is_dir() {
        return Ok(vec![input.to_owned()]);
    }
    let mut pictures = Vec::new();
    for entry in input.read_dir().with_context(|| input.display().to_string())? {
        let path = entry.with_context(|| input.display().to_string())?.path();
        if path.is_file() && has_picture_extension(&path) {
            pictures.push(path);
        }
    }
    pictures.sort();
    if pictures.is_empty() {
        bail!("{}: no pictures in this folder", input.display());
    }
    Ok(pictures)
}

fn has_picture_extension(path: &Path) -> bool {
    const KNOWN: [&str; 8] = ["png", "jpg", "jpeg", "webp", "bmp", "tif", "tiff", "gif"];
    let extension = path.extension().and_then(|extension| extension.to_str());
    extension.is_some_and(|extension| KNOWN.contains(&extension.to_ascii_lowercase().as_str()))
}
