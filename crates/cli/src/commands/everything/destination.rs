//! Output of automatic masks.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use cutout_imaging::{
    MaskDepth, Rle, encode_image, encode_labels, encode_mask, label_map, overlay, write, write_npy,
};
use cutout_sam::{AutoMask, MaskRecord, RleForm, metadata_csv};

use super::Found;
use crate::claims::Claims;
use crate::failure::Usage;
use crate::output::{check_extension, names_folder};
use crate::stdio;

/// Outputs for one picture or for a folder of pictures.
pub(super) struct Destination {
    pub(super) output: Option<PathBuf>,
    pub(super) overlay: Option<PathBuf>,
    pub(super) convert_to_rle: bool,
    pub(super) json: bool,
    /// Whether the input is a folder of pictures.
    pub(super) folder: bool,
    /// Whether the paths were made up.
    pub(super) are_usual: bool,
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
        let stem = picture.file_stem().unwrap_or_default().to_string_lossy();
        Destination {
            output: Some(PathBuf::from(format!("{stem}.masks.json"))),
            overlay: Some(PathBuf::from(format!("{stem}.everything.png"))),
            convert_to_rle: false,
            json: false,
            folder: false,
            are_usual: true,
        }
    }

    /// Notes what was written.
    pub(super) fn note_written(&self) {
        let paths = self.output.iter().chain(&self.overlay).map(PathBuf::as_path);
        stdio::note_written(!self.are_usual, paths);
    }

    /// Adds the outputs for pictures with these names to `claims`.
    pub(super) fn claim(&self, claims: &mut Claims, names: &[&String]) -> Result<()> {
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
        if self.are_usual {
            let mut paths = self.output.iter().chain(&self.overlay);
            return paths.try_for_each(|path| claims.writes_unnamed(path));
        }
        match self.output.as_ref().map(|path| (path, form(path))) {
            None => {}
            Some((path, Form::Json | Form::Labels | Form::Npy)) => claims.writes(path)?,
            Some((path, Form::Folder)) if self.convert_to_rle => {
                let files: HashSet<String> =
                    names.iter().map(|name| format!("{name}.json")).collect();
                claims.writes_into(path, |name| files.contains(name))?;
            }
            Some((path, Form::Folder)) => {
                claims.writes_into(path, |_| false)?;
                let mut folders = names.iter().map(|name| path.join(name));
                folders.try_for_each(|folder| claims.writes_inside(&folder, is_result))?;
            }
        }
        match &self.overlay {
            None => Ok(()),
            Some(path) if !self.folder => claims.writes(path),
            Some(path) => {
                let files: HashSet<String> =
                    names.iter().map(|name| format!("{name}.png")).collect();
                claims.writes_into(path, |name| files.contains(name))
            }
        }
    }

    /// Whether the masks of a picture exist already.
    pub(super) fn is_done(&self, name: &str) -> bool {
        let done = self.output.as_ref().map(|path| match form(path) {
            Form::Json | Form::Labels | Form::Npy => path.clone(),
            Form::Folder if self.convert_to_rle => path.join(format!("{name}.json")),
            // The metadata is written last.
            Form::Folder => path.join(name).join(METADATA),
        });
        // An empty file is what a full disk leaves of other programs' copies.
        done.is_some_and(|path| path.metadata().is_ok_and(|found| found.len() > 0))
    }

    /// Writes all outputs of one picture.
    pub(super) fn write(&self, name: &str, found: &Found) -> Result<()> {
        if let Some(path) = &self.output {
            self.write_masks(path, name, found)?;
        }
        if let Some(path) = &self.overlay {
            let path = if self.folder {
                make_folder(path)?;
                path.join(format!("{name}.png"))
            } else {
                path.clone()
            };
            write(path, &encode_image(&overlay(&found.image, &runs(found))?)?)?;
        }
        if self.json { stdio::print_json(&records(&found.masks)) } else { Ok(()) }
    }

    fn write_masks(&self, path: &Path, name: &str, found: &Found) -> Result<()> {
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
                if !self.convert_to_rle {
                    return write_folder(&path.join(name), found);
                }
                let path = path.join(format!("{name}.json"));
                write(path, &serde_json::to_vec(&records(&found.masks))?)?;
            }
        }
        Ok(())
    }
}

/// The table of the masks in a folder.
const METADATA: &str = "metadata.csv";

/// Whether a file of this name in the folder of a picture is a result.
fn is_result(name: &str) -> bool {
    name == METADATA || number(name).is_some()
}

/// The number of a mask, from its file name.
fn number(name: &str) -> Option<usize> {
    let digits = name.strip_suffix(".png")?;
    digits.parse().ok().filter(|number: &usize| number.to_string() == digits)
}

/// Writes `0.png`, `1.png`, …, then `metadata.csv`. Masks of an earlier run with more masks are removed.
fn write_folder(folder: &Path, found: &Found) -> Result<()> {
    make_folder(folder)?;
    // Without its table, the folder counts as incomplete.
    remove_if_there(&folder.join(METADATA))?;
    for (index, mask) in found.masks.iter().enumerate() {
        let png = encode_mask(&mask.rle.to_mask()?, MaskDepth::Byte)?;
        write(folder.join(format!("{index}.png")), &png)?;
    }
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let entry = entry.with_context(|| folder.display().to_string())?;
        if number(&entry.file_name().to_string_lossy()).is_some_and(|n| n >= found.masks.len()) {
            remove_if_there(&entry.path())?;
        }
    }
    Ok(write(folder.join(METADATA), metadata_csv(&found.masks).as_bytes())?)
}

fn remove_if_there(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("{}: cannot be removed", path.display()))
        }
        Ok(()) | Err(_) => Ok(()),
    }
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
