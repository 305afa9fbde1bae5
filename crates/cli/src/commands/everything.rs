//! `cutout everything`: automatic masks of a picture, or of all pictures in a folder.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use clap::Args;
use cutout_sam::{AutoMask, Everything as Options};

use crate::claims::result_names;
use crate::failure::{Usage, message};
use crate::options::{ModelOption, RunOptions};
use crate::{picture, stdio};

mod destination;
mod exports;
mod knobs;
mod search;

use destination::Destination;
use exports::Exports;
pub(super) use knobs::Knobs;
use search::Search;

/// Find the masks of all objects in a picture, or in every picture of a folder
#[derive(Args)]
#[command(after_help = "Examples:
  cutout everything truck.jpg --model sam_vit_b_01ec64.pth
      writes truck.masks.json and truck.everything.png
  cutout everything truck.jpg -m sam_vit_b_01ec64.pth -o truck.json --points-per-side 16
  cutout everything photos -m sam_vit_b_01ec64.pth -o masks --convert-to-rle --resume
      writes masks/NAME.json for every photo that has none yet
  cutout everything photos -m sam_vit_b_01ec64.pth -o masks --overlay pictures --crop-n-layers 1
      writes masks/NAME/0.png, 1.png, ... and metadata.csv, and pictures/NAME.png
  cutout everything photos -m sam_vit_b_01ec64.pth -o masks --device cuda:all
      all GPUs of this machine share the pictures; the files are those of one GPU
  cutout everything photos -m sam_vit_b_01ec64.pth --coco photos.json --yolo dataset --simplify 1
      one COCO data set and YOLO labels of all photos, with outlines of few corners

Options, their defaults and the files are those of Meta's amg.py.")]
pub(crate) struct Everything {
    /// A picture, or a folder of pictures
    input: PathBuf,
    #[command(flatten)]
    model: ModelOption,
    /// Write the masks: a .json file, a .png whose pixel values are mask numbers, or a .npy file; or a folder, which gets a
    /// folder of PNG files and a metadata.csv per picture
    #[arg(long, short, value_name = "PATH")]
    output: Option<PathBuf>,
    /// If the output is a folder, write one JSON file with run lengths per picture instead of PNG files
    #[arg(long)]
    convert_to_rle: bool,
    /// Write the picture with its masks drawn over it, as PNG; for a folder of pictures, a folder
    #[arg(long, value_name = "PATH")]
    overlay: Option<PathBuf>,
    /// Print the masks of the picture as JSON to standard output
    #[arg(long)]
    json: bool,
    /// Skip pictures whose masks exist already
    #[arg(long)]
    resume: bool,
    #[command(flatten)]
    exports: Exports,
    #[command(flatten)]
    knobs: Knobs,
    #[command(flatten)]
    run: RunOptions,
}

impl Everything {
    pub(crate) fn run(self) -> Result<()> {
        let pictures = picture::pictures_in(&self.input)?;
        let names = result_names(&pictures);
        let destination = self.destination()?;
        let model = self.model.source()?;
        let mut claims = self.run.claims(&model);
        claims.reads(&self.input);
        let is_skipped = |name: &String| self.resume && destination.is_done(name);
        let missing: Vec<&String> = names.iter().filter(|name| !is_skipped(name)).collect();
        destination.claim(&mut claims, &missing)?;
        self.exports.claim(&mut claims, &pictures)?;
        let positions = (0..pictures.len()).filter(|&index| !is_skipped(&names[index]));
        let missing: Vec<usize> = positions.collect();
        let fleet = model.start_fleet(&self.run, missing.len())?;
        let options = self.knobs.options(fleet.first())?;
        let mut exporting = self.exports.begin()?;
        let search = Search { pictures: &pictures, options: &options, fleet: &fleet };
        let mut failed = 0;
        search.run(&missing, &mut |index, found| {
            let result = found.and_then(|found| {
                if found.masks.is_empty() {
                    stdio::note(&nothing_found(&pictures[index], &options));
                }
                exporting.add(&pictures[index], &found)?;
                destination.write(&names[index], &found)
            });
            match result {
                // In a folder, a failure is reported and the other pictures are processed.
                Err(error) if self.input.is_dir() => {
                    stdio::note(&format!("error: {}", message(&error)));
                    failed += 1;
                    Ok(())
                }
                result => result,
            }
        })?;
        exporting.finish(fleet.first().description())?;
        if failed > 0 {
            bail!("{failed} of {} pictures failed", pictures.len());
        }
        destination.note_written();
        stdio::note_written(true, self.exports.paths());
        Ok(())
    }

    fn asks_for_nothing(&self) -> bool {
        self.output.is_none() && self.overlay.is_none() && !self.json && self.exports.is_empty()
    }

    fn destination(&self) -> Result<Destination> {
        let folder = self.input.is_dir();
        if folder && self.output.is_none() && self.exports.is_empty() {
            return Err(Usage::error(
                "a folder of pictures needs a folder for the masks: give --output, --coco or --yolo",
            ));
        }
        if folder && self.json {
            return Err(Usage::error("--json is for one picture; use --output for a folder"));
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
            are_usual: false,
        })
    }
}

/// A picture and its masks.
struct Found {
    image: cutout_imaging::Image,
    masks: Vec<AutoMask>,
}

/// The note for a picture without masks.
fn nothing_found(picture: &Path, options: &Options) -> String {
    format!(
        "{}: no mask passed --pred-iou-thresh {} and --stability-score-thresh {}; lower values keep more masks",
        picture.display(),
        options.pred_iou_thresh,
        options.stability_score_thresh
    )
}
