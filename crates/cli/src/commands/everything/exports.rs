//! Data sets of all pictures: COCO and YOLO.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Args;
use cutout_imaging::write;
use cutout_sam::AutoMask;
use serde::Serialize;

use super::Found;
use crate::claims::Claims;
use crate::failure::Usage;
use crate::output::{Dataset, OutlineOptions, Picture, Segmentation, yolo};

/// The classes of a YOLO data set, which is trained with the pictures in a folder `images` beside `labels`.
const YOLO_CLASSES: &str =
    "# cutout\npath: .\ntrain: images\nval: images\nnc: 1\nnames:\n  0: object\n";

/// Name of the file with the classes.
const CLASSES_FILE: &str = "data.yaml";

/// Data sets of all pictures.
#[derive(Args)]
#[command(next_help_heading = "Data sets")]
pub(super) struct Exports {
    /// Write one COCO data set with all pictures and their masks
    #[arg(long, value_name = "FILE", conflicts_with = "resume")]
    coco: Option<PathBuf>,
    /// Write YOLO segmentation labels: labels/NAME.txt for every picture, and data.yaml
    #[arg(long, value_name = "FOLDER")]
    yolo: Option<PathBuf>,
    #[command(flatten)]
    outlines: OutlineOptions,
}

/// Data sets that are being written.
pub(super) struct Exporting<'a> {
    coco: Option<Dataset>,
    yolo: Option<&'a Path>,
    simplify: Option<f64>,
}

/// A mask in a COCO data set: the fields of Meta's records.
#[derive(Serialize)]
struct Annotation {
    segmentation: Segmentation,
    area: usize,
    bbox: [usize; 4],
    predicted_iou: f64,
    point_coords: [[f64; 2]; 1],
    stability_score: f64,
    crop_box: [usize; 4],
}

impl Annotation {
    fn of(mask: &AutoMask, simplify: Option<f64>) -> Result<Self> {
        let record = mask.record(cutout_sam::RleForm::Compressed);
        Ok(Annotation {
            segmentation: Segmentation::of(&mask.rle, simplify)?,
            area: record.area,
            bbox: record.bbox,
            predicted_iou: record.predicted_iou,
            point_coords: record.point_coords,
            stability_score: record.stability_score,
            crop_box: record.crop_box,
        })
    }
}

impl Exports {
    /// Whether no data set is asked for.
    pub(super) fn is_empty(&self) -> bool {
        self.coco.is_none() && self.yolo.is_none()
    }

    /// The files and folders to write.
    pub(super) fn paths(&self) -> impl Iterator<Item = &Path> {
        self.coco.iter().chain(&self.yolo).map(PathBuf::as_path)
    }

    /// Checks that the data sets can hold these pictures, and adds their files to `claims`.
    pub(super) fn claim(&self, claims: &mut Claims, pictures: &[PathBuf]) -> Result<()> {
        if self.outlines.simplify.is_some() && self.is_empty() {
            return Err(Usage::error("--simplify needs --coco or --yolo"));
        }
        if let Some(path) =
            self.coco.as_ref().filter(|path| path.extension().is_none_or(|it| it != "json"))
        {
            let path = path.display();
            return Err(Usage::error(format!("{path}: --coco writes JSON: name a .json file")));
        }
        let mut stems = HashSet::new();
        let twice = pictures.iter().find(|picture| !stems.insert(picture.file_stem()));
        if let (Some(picture), Some(_)) = (twice, &self.yolo) {
            let message = "YOLO's labels are named after the picture without its extension, and another picture has the same";
            return Err(Usage::error(format!("{}: {message}", picture.display())));
        }
        self.coco.as_ref().map_or(Ok(()), |path| claims.writes(path))?;
        let Some(folder) = &self.yolo else { return Ok(()) };
        claims.writes_into(folder, |name| name == CLASSES_FILE)?;
        // Labels have no room for the program's name: they are ours if the list of classes is.
        let is_ours = folder.join(CLASSES_FILE).exists();
        let labels: HashSet<String> = pictures.iter().map(|picture| label_file(picture)).collect();
        claims.writes_inside(&folder.join("labels"), |name| !is_ours && labels.contains(name))
    }

    /// Opens the files.
    pub(super) fn begin(&self) -> Result<Exporting<'_>> {
        if let Some(folder) = &self.yolo {
            let labels = folder.join("labels");
            fs::create_dir_all(&labels)
                .with_context(|| format!("{}: cannot make the folder", labels.display()))?;
            write(folder.join(CLASSES_FILE), YOLO_CLASSES.as_bytes())?;
        }
        Ok(Exporting {
            coco: self.coco.as_deref().map(Dataset::begin).transpose()?,
            yolo: self.yolo.as_deref(),
            simplify: self.outlines.simplify,
        })
    }
}

/// Name of the labels of a picture.
fn label_file(picture: &Path) -> String {
    format!("{}.txt", picture.file_stem().unwrap_or_default().display())
}

impl Exporting<'_> {
    /// Adds a picture.
    pub(super) fn add(&mut self, picture: &Path, found: &Found) -> Result<()> {
        let size = found.image.size();
        if let Some(folder) = self.yolo {
            let masks = found.masks.iter().map(|mask| (0, &mask.rle));
            let path = folder.join("labels").join(label_file(picture));
            write(path, yolo(size, masks, self.simplify)?.as_bytes())?;
        }
        if let Some(dataset) = &mut self.coco {
            // Tools join the name to the folder of the pictures.
            let name = Path::new(picture.file_name().unwrap_or_default());
            let entry = Picture::new(dataset.next_picture(), name, size);
            let annotations = found.masks.iter().map(|mask| Annotation::of(mask, self.simplify));
            dataset.add(entry, annotations)?;
        }
        Ok(())
    }

    /// Completes the files.
    pub(super) fn finish(self, model: String) -> Result<()> {
        self.coco.map_or(Ok(()), |dataset| dataset.finish(model))
    }
}
