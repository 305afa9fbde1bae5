//! Output of automatic masks.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use cutout_imaging::{
    MaskDepth, Rle, encode_image, encode_labels, encode_mask, label_map, overlay, write, write_npy,
};
use cutout_sam::{AutoMask, MaskRecord, RleForm, metadata_csv};

use super::Found;
use crate::failure::Usage;
use crate::output::{check_extension, check_folder, names_folder};
use crate::{interrupt, stdio};

/// Outputs for one picture or for a folder of pictures.
pub(super) struct Destination {
    pub(super) output: Option<PathBuf>,
    pub(super) overlay: Option<PathBuf>,
    pub(super) convert_to_rle: bool,
    pub(super) json: bool,
    /// Whether the input is a folder of pictures.
    pub(super) folder: bool,
}

/// Format of `--output`.
enum Form {
    Json,
    Labels,
    Npy,
    Folder,
}

/// The format of a path, from its extension.
fn form(path: &Path) -> Form {
    let extension = path.extension().and_then(|extension| extension.to_str());
    match extension.map(str::to_ascii_lowercase).as_deref() {
        _ if names_folder(path) => Form::Folder,
        Some("json") => Form::Json,
        Some("png") => Form::Labels,
        Some("npy") => Form::Npy,
        Some(_) | None => Form::Folder,
    }
}

impl Destination {
    /// The default outputs: JSON and overlay in the current folder, named after the picture.
    pub(super) fn usual(picture: &Path) -> Self {
        let stem = stem(picture);
        Destination {
            output: Some(PathBuf::from(format!("{stem}.masks.json"))),
            overlay: Some(PathBuf::from(format!("{stem}.overlay.png"))),
            convert_to_rle: false,
            json: false,
            folder: false,
        }
    }

    /// The paths, for a note.
    pub(super) fn names(&self) -> String {
        let paths = self.output.iter().chain(&self.overlay);
        paths.map(|path| path.display().to_string()).collect::<Vec<_>>().join(" and ")
    }

    /// Checks before any work starts that folders exist and that a folder of pictures has a folder for its masks.
    pub(super) fn check(&self) -> Result<()> {
        if let Some(path) = &self.output
            && self.folder
            && !matches!(form(path), Form::Folder)
        {
            let message = "the masks of a folder of pictures go to a folder, not a file";
            return Err(Usage::error(format!("{}: {message}", path.display())));
        }
        self.output.iter().try_for_each(|path| check_extension(path, &["json", "png", "npy"]))?;
        let overlay: &[&str] = if self.folder { &[] } else { &["png"] };
        self.overlay.iter().try_for_each(|path| check_extension(path, overlay))?;
        self.output.iter().chain(&self.overlay).try_for_each(|path| check_folder(path))
    }

    /// Whether the masks of a picture exist already.
    pub(super) fn is_done(&self, picture: &Path) -> bool {
        let done = self.output.as_ref().map(|path| match form(path) {
            Form::Json | Form::Labels | Form::Npy => path.clone(),
            Form::Folder if self.convert_to_rle => path.join(stem(picture) + ".json"),
            // The metadata is written last.
            Form::Folder => path.join(stem(picture)).join("metadata.csv"),
        });
        done.is_some_and(|path| path.exists())
    }

    /// Writes all outputs of one picture.
    pub(super) fn write(&self, picture: &Path, found: &Found) -> Result<()> {
        if let Some(path) = &self.output {
            self.write_masks(path, picture, found)?;
        }
        if let Some(path) = &self.overlay {
            let path = if self.folder {
                make_folder(path)?;
                path.join(stem(picture) + ".png")
            } else {
                path.clone()
            };
            interrupt::writes_beside(&path);
            write(path, &encode_image(&overlay(&found.image, &runs(found))?)?)?;
        }
        if self.json { stdio::print_json(&records(&found.masks)) } else { Ok(()) }
    }

    fn write_masks(&self, path: &Path, picture: &Path, found: &Found) -> Result<()> {
        interrupt::writes_beside(path);
        let size = found.image.size();
        match form(path) {
            Form::Json => write(path, &serde_json::to_vec(&records(&found.masks))?)?,
            Form::Labels => {
                // Large masks first, so that small ones stay visible.
                let mut runs = runs(found);
                runs.sort_by_key(|run| std::cmp::Reverse(run.area()));
                write(path, &encode_labels(size, &label_map(size, &runs)?)?)?;
            }
            Form::Npy => write_npy(path, size, &runs(found))?,
            Form::Folder => {
                make_folder(path)?;
                let name = stem(picture);
                if !self.convert_to_rle {
                    return write_folder(&path.join(name), found);
                }
                let path = path.join(name + ".json");
                interrupt::writes_beside(&path);
                write(path, &serde_json::to_vec(&records(&found.masks))?)?;
            }
        }
        Ok(())
    }
}

/// Writes `0.png`, `1.png`, …, then `metadata.csv`.
fn write_folder(folder: &Path, found: &Found) -> Result<()> {
    make_folder(folder)?;
    interrupt::writes_beside(&folder.join("metadata.csv"));
    for (index, mask) in found.masks.iter().enumerate() {
        let png = encode_mask(&mask.rle.try_to_mask()?, MaskDepth::Byte)?;
        write(folder.join(format!("{index}.png")), &png)?;
    }
    Ok(write(folder.join("metadata.csv"), metadata_csv(&found.masks).as_bytes())?)
}

fn make_folder(path: &Path) -> Result<()> {
    fs::create_dir_all(path).with_context(|| format!("{}: cannot make the folder", path.display()))
}

fn runs(found: &Found) -> Vec<Rle> {
    found.masks.iter().map(|mask| mask.rle.clone()).collect()
}

fn records(masks: &[AutoMask]) -> Vec<MaskRecord> {
    masks.iter().map(|mask| mask.record(RleForm::Compressed)).collect()
}

fn stem(picture: &Path) -> String {
    picture.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}
