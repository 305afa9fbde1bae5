//! `cargo xtask size`: lines of each crate, and the limit on the length of a file.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::metadata::root;

/// Lines a source file may have.
const MOST_LINES: usize = 500;

/// Prints lines per crate; fails if a file is longer than [`MOST_LINES`].
pub(crate) fn check() -> Result<()> {
    let crates = root()?.join("crates");
    let mut files = Vec::new();
    collect(&crates, &mut files)?;
    let mut totals: BTreeMap<String, (usize, usize)> = BTreeMap::new();
    let mut long = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(&file).with_context(|| file.display().to_string())?;
        let lines = text.lines().count();
        let relative = file.strip_prefix(&crates)?;
        let name = relative.iter().next().unwrap_or_default().to_string_lossy().into_owned();
        let total = totals.entry(name).or_default();
        total.0 += 1;
        total.1 += lines;
        if lines > MOST_LINES {
            long.push(format!("{}: {lines} lines, at most {MOST_LINES}", relative.display()));
        }
    }
    println!("size: {:<10}{:>6}{:>8}", "crate", "files", "lines");
    for (name, (files, lines)) in &totals {
        println!("size: {name:<10}{files:>6}{lines:>8}");
    }
    if long.is_empty() { Ok(()) } else { bail!("{}", long.join("\n")) }
}

fn collect(directory: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    for entry in std::fs::read_dir(directory).with_context(|| directory.display().to_string())? {
        let path = entry?.path();
        if path.is_dir() && path.file_name().is_none_or(|name| name != "target") {
            collect(&path, files)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    Ok(())
}
