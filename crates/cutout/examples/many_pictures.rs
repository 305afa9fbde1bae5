//! The object in the middle of every picture of a folder, embedded together. From the root of the repository:
//! `cargo run --release -p cutout --example many_pictures [FOLDER]`.

#![allow(clippy::print_stdout, reason = "it is a program")]

use std::error::Error;
use std::path::{Path, PathBuf};

use cutout::{Prompt, Sam, imaging};

/// Pictures in memory at once.
const BATCH: usize = 16;

fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::args().nth(1).unwrap_or_else(|| "examples".to_owned());
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        paths.push(entry?.path());
    }
    paths.retain(|path| is_picture(path));
    paths.sort();

    let sam = Sam::builtin()?;
    let limits = imaging::DecodeLimits::default();
    for paths in paths.chunks(BATCH) {
        let open = |path: &PathBuf| imaging::open(path, &limits);
        let images = paths.iter().map(open).collect::<Result<Vec<_>, _>>()?;
        for (path, scene) in paths.iter().zip(sam.embed_all(&images)?) {
            let (x, y) = (scene.size().width as f64 / 2.0, scene.size().height as f64 / 2.0);
            let masks = scene.segment(&Prompt::point(x, y))?;
            let (area, iou) = (masks.best().rle()?.area(), masks.best().iou());
            println!("{}: {area} pixels, predicted IoU {iou:.2}", path.display());
        }
    }
    Ok(())
}

fn is_picture(path: &Path) -> bool {
    const EXTENSIONS: [&str; 5] = ["gif", "jpeg", "jpg", "png", "webp"];
    let extension = path.extension().and_then(|extension| extension.to_str());
    extension.is_some_and(|found| EXTENSIONS.contains(&found.to_ascii_lowercase().as_str()))
}
