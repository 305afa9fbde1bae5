//! Output of masks: files by extension, overlays, cut-outs, JSON.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Args;
use cutout_imaging::{
    Bounds, Image, Mask, MaskDepth, Rle, Tag, cut_out, encode_image, encode_labels, encode_mask,
    encode_rgba, label_map, overlay_colours, overlay_with, tagged, write, write_npy,
};

use cutout_tensor::memory;

use crate::claims::Claims;
use crate::failure::Usage;
use crate::stdio;

mod dataset;
mod extensions;
mod outlines;
mod raw;
mod records;

pub(crate) use dataset::Dataset;
pub(crate) use extensions::{check_extension, names_folder, parse_png};
pub(crate) use outlines::{OutlineOptions, parse_tolerance, yolo};
pub(crate) use raw::{write_raw, write_raw_detections};
pub(crate) use records::{
    Annotation, Category, Document, Finding, Info, MaskIndex, Picture, Segmentation,
};

/// Flags of outputs.
#[derive(Args)]
#[command(next_help_heading = "Output")]
pub(crate) struct OutputOptions {
    /// Write the masks; the extension selects the format: .png, .json (COCO data set), .svg, .geojson, .txt (YOLO
    /// segmentation) or .npy. Repeat for more files
    #[arg(long, short, value_name = "FILE", value_parser = parse_output)]
    output: Vec<PathBuf>,
    /// Write the picture with the masks drawn over it, as PNG
    #[arg(long, value_name = "FILE", value_parser = parse_png)]
    overlay: Option<PathBuf>,
    /// Write the picture with everything outside the masks transparent, as PNG
    #[arg(long, value_name = "FILE", value_parser = parse_png)]
    cutout: Option<PathBuf>,
    /// Print the masks as JSON to standard output
    #[arg(long)]
    json: bool,
    /// Whether the names were made up.
    #[arg(skip)]
    are_usual: bool,
    #[command(flatten)]
    outlines: OutlineOptions,
}

/// Formats of mask files.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Png,
    Json,
    Svg,
    GeoJson,
    Yolo,
    Npy,
}

impl Kind {
    fn of(path: &Path) -> Option<Kind> {
        let extension = path.extension()?.to_str()?.to_ascii_lowercase();
        match extension.as_str() {
            "png" => Some(Kind::Png),
            "json" => Some(Kind::Json),
            "svg" => Some(Kind::Svg),
            "geojson" => Some(Kind::GeoJson),
            "txt" => Some(Kind::Yolo),
            "npy" => Some(Kind::Npy),
            _ => None,
        }
    }
}

fn parse_output(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    match Kind::of(&path) {
        Some(_) => Ok(path),
        None => Err("the extension must be .png, .json, .svg, .geojson, .txt or .npy".to_owned()),
    }
}

/// The picture and its masks.
pub(crate) struct Found<'a> {
    pub(crate) image: &'a Image,
    pub(crate) document: &'a Document,
    /// The masks drawn in images: the best candidate of each prompt, or every object found.
    pub(crate) shown: &'a [Rle],
    /// Label of each shown mask on the overlay; empty for prompts, which have no names.
    pub(crate) labels: &'a [String],
}

impl OutputOptions {
    /// Adds the files to write.
    pub(crate) fn claim(&self, claims: &mut Claims) -> Result<()> {
        let is_outline =
            |path: &PathBuf| !matches!(Kind::of(path), Some(Kind::Png | Kind::Npy) | None);
        if self.simplify().is_some() && !self.json && !self.output.iter().any(is_outline) {
            return Err(Usage::error(
                "--simplify needs --json or an output in .json, .svg, .geojson or .txt",
            ));
        }
        match self.are_usual {
            false => self.paths().try_for_each(|path| claims.writes(path)),
            true => self.paths().try_for_each(|path| claims.writes_unnamed(path)),
        }
    }

    /// Tolerance of outlines, in pixels.
    pub(crate) fn simplify(&self) -> Option<f64> {
        self.outlines.simplify
    }

    /// Whether nothing about outputs is given.
    pub(crate) fn is_empty(&self) -> bool {
        self.paths().next().is_none() && !self.json && self.simplify().is_none()
    }

    /// The default outputs: mask and overlay in the current folder, named after the picture.
    pub(crate) fn usual(image: &Path) -> Self {
        let stem = image.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        OutputOptions {
            output: vec![PathBuf::from(format!("{stem}.mask.png"))],
            overlay: Some(PathBuf::from(format!("{stem}.overlay.png"))),
            cutout: None,
            json: false,
            are_usual: true,
            outlines: OutlineOptions { simplify: None },
        }
    }

    /// The files to write.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &Path> {
        self.output.iter().chain(&self.overlay).chain(&self.cutout).map(PathBuf::as_path)
    }

    /// Whether the user named the files.
    pub(crate) fn are_named(&self) -> bool {
        !self.are_usual
    }

    /// Writes all outputs.
    pub(crate) fn write(&self, found: &Found<'_>) -> Result<()> {
        for path in &self.output {
            write_masks(path, found, self.simplify())?;
        }
        if let Some(path) = &self.overlay {
            write(path, &encode_image(&labelled_overlay(found)?)?)?;
        }
        if let Some(path) = &self.cutout {
            let pixels = cut_out(found.image, &union(found)?)?;
            write(path, &encode_rgba(found.image.size(), &pixels)?)?;
        }
        if self.json { stdio::print_json(found.document) } else { Ok(()) }
    }
}

/// The picture with the masks and their labels drawn over it.
fn labelled_overlay(found: &Found<'_>) -> Result<Image> {
    let colours = overlay_colours(found.image, found.shown);
    let coloured: Vec<(&Rle, [u8; 3])> = found.shown.iter().zip(colours).collect();
    let drawn = overlay_with(found.image, &coloured)?;
    let mut tags = Vec::new();
    for ((mask, colour), text) in coloured.iter().zip(found.labels) {
        // An empty mask has no position.
        if let Some(Bounds { left, top, .. }) = mask.bounds() {
            tags.push(Tag { text, x: left, y: top, colour: *colour });
        }
    }
    Ok(tagged(&drawn, &tags)?)
}

fn write_masks(path: &Path, found: &Found<'_>, simplify: Option<f64>) -> Result<()> {
    let kind = Kind::of(path).context("the parser accepts known extensions only")?;
    let size = found.image.size();
    match kind {
        Kind::Png => write(path, &mask_png(found)?)?,
        Kind::Json => write(path, &serde_json::to_vec_pretty(found.document)?)?,
        Kind::Svg => write(path, outlines::svg(size, found.shown, simplify)?.as_bytes())?,
        Kind::GeoJson => write(path, &serde_json::to_vec(&outlines::geojson(found, simplify)?)?)?,
        Kind::Yolo => {
            let best = found.document.annotations.iter().filter(|annotation| annotation.is_best());
            let classes = best.map(|annotation| annotation.category_id() - 1);
            write(path, yolo(size, classes.zip(found.shown), simplify)?.as_bytes())?;
        }
        Kind::Npy => write_npy(path, size, found.shown)?,
    }
    Ok(())
}

/// One mask in white on black; several as labels from 1, with a colour palette.
fn mask_png(found: &Found<'_>) -> Result<Vec<u8>> {
    let size = found.image.size();
    match found.shown {
        [] => Ok(encode_mask(&Mask::empty(size)?, MaskDepth::Byte)?),
        [mask] => Ok(encode_mask(&mask.to_mask()?, MaskDepth::Byte)?),
        several => Ok(encode_labels(size, &label_map(size, several)?)?),
    }
}

/// The union of all masks.
fn union(found: &Found<'_>) -> Result<Mask> {
    let size = found.image.size();
    let mut pixels: Vec<bool> = memory::zeroed(size.pixels(1)?)?;
    for (start, end) in found.shown.iter().flat_map(Rle::runs) {
        // Runs are in column-major order.
        for pixel in start..end {
            pixels[pixel % size.height * size.width + pixel / size.height] = true;
        }
    }
    Ok(Mask::from_pixels(size, pixels)?)
}
