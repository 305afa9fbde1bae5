//! Writes the pixels of JPEG files as raw RGB: `pixels FOLDER FILE...`.
#![allow(clippy::print_stdout, reason = "a program whose output is its purpose")]

use std::path::{Path, PathBuf};

fn main() {
    let mut arguments = std::env::args_os().skip(1).map(PathBuf::from);
    let folder = arguments.next().expect("a folder for the results");
    let mut files: Vec<PathBuf> = arguments.collect();
    if files.len() == 1 && files[0].is_dir() {
        files = std::fs::read_dir(&files[0]).unwrap().map(|e| e.unwrap().path()).filter(|p| p.extension().is_some_and(|e| e == "jpg")).collect();
    }
    for file in files {
        let bytes = std::fs::read(&file).expect("a readable file");
        let name = Path::new(file.file_name().expect("a file")).to_owned();
        let result = cutout_jpeg::Decoder::new(&bytes).and_then(cutout_jpeg::Decoder::decode);
        let out = folder.join(name);
        match result {
            Ok(picture) => {
                std::fs::write(out.with_extension("rgb"), &picture.rgb).expect("a writable folder");
                if let Some(damage) = picture.damage { std::fs::write(out.with_extension("warn"), damage.to_string()).unwrap(); }
            }
            Err(error) => std::fs::write(out.with_extension("err"), error.to_string()).expect("a writable folder"),
        }
    }
}
