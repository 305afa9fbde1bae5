//! Writes the pixels of every file of a folder as raw RGB, for comparison with other programs:
//! `cargo run --release -p cutout-imaging --example pixels -- FOLDER RESULTS`.
//!
//! `RESULTS/<name>.rgb` has the pixels, u8 `[height, width, 3]`; `<name>.warning` and `<name>.error` what was said.

use std::path::PathBuf;

use cutout_imaging::{DecodeLimits, open};

fn main() -> std::io::Result<()> {
    let [folder, results] = [1, 2].map(|index| std::env::args_os().nth(index).map(PathBuf::from));
    let (Some(folder), Some(results)) = (folder, results) else {
        return Err(std::io::Error::other("usage: pixels FOLDER RESULTS"));
    };
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if !path.is_file() {
            continue;
        }
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        match open(&path, &DecodeLimits::default()) {
            Ok(image) => {
                if let Some(warning) = image.warning() {
                    std::fs::write(results.join(format!("{name}.warning")), warning)?;
                }
                std::fs::write(results.join(format!("{name}.rgb")), image.as_rgb())?;
            }
            Err(error) => {
                std::fs::write(results.join(format!("{name}.error")), error.to_string())?;
            }
        }
    }
    Ok(())
}
