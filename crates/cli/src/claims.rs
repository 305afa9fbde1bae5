//! What a command reads and writes, checked before any work.
//!
//! One rule for all commands: an output may not be an input, two outputs may not be the same file, and a file that exists is
//! replaced only if the user named it or this program wrote it.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;
use cutout_files::is_written_here;

use crate::failure::Usage;

/// The inputs and outputs of a command.
#[derive(Default)]
pub(crate) struct Claims {
    inputs: Vec<Place>,
    outputs: HashSet<PathBuf>,
    existing_outputs: HashSet<FileNumber>,
}

/// A file or folder. Two places are the same if their paths or the files there are, links included.
struct Place {
    shown: PathBuf,
    resolved: PathBuf,
    existing: Option<FileNumber>,
}

/// Number of a device and of a file on it.
type FileNumber = (u64, u64);

impl Claims {
    /// Adds a file or folder that is read.
    pub(crate) fn reads(&mut self, path: impl AsRef<Path>) {
        self.inputs.push(Place::of(path.as_ref()));
    }

    /// Adds a file that the user named: it may exist.
    pub(crate) fn writes(&mut self, path: &Path) -> Result<()> {
        check_folder(path)?;
        if path.is_dir() {
            return Err(Usage::error(format!("{}: is a folder, not a file", path.display())));
        }
        let place = Place::of(path);
        if place.is_device() {
            return Ok(());
        }
        self.enter(place)
    }

    /// Adds a file whose name was made up: if it exists, this program must have written it.
    pub(crate) fn writes_unnamed(&mut self, path: &Path) -> Result<()> {
        self.enter(Place::of(path))?;
        refuse_foreign(path)
    }

    /// Adds a folder for files with names that were made up. Those for which `is_result` holds may exist only if this
    /// program wrote them.
    pub(crate) fn writes_into(
        &mut self,
        folder: &Path,
        is_result: impl Fn(&str) -> bool,
    ) -> Result<()> {
        check_folder(folder)?;
        self.writes_inside(folder, is_result)
    }

    /// As [`Claims::writes_into`], for a folder that may have to be created with its parents.
    pub(crate) fn writes_inside(
        &mut self,
        folder: &Path,
        is_result: impl Fn(&str) -> bool,
    ) -> Result<()> {
        if folder.exists() && !folder.is_dir() {
            return Err(Usage::error(format!("{}: exists and is not a folder", folder.display())));
        }
        self.enter(Place::of(folder))?;
        let entries = fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
        let results = entries.filter(|entry| is_result(&entry.file_name().to_string_lossy()));
        results.map(|entry| entry.path()).try_for_each(|path| refuse_foreign(&path))
    }

    fn enter(&mut self, place: Place) -> Result<()> {
        let shown = place.shown.display().to_string();
        if let Some(input) = self.inputs.iter().find(|input| input.holds(&place)) {
            let input = input.shown.display();
            return Err(Usage::error(format!(
                "{shown}: would overwrite {input}, which is an input: give another output"
            )));
        }
        let is_new = self.outputs.insert(place.resolved);
        if is_new && place.existing.is_none_or(|number| self.existing_outputs.insert(number)) {
            return Ok(());
        }
        Err(Usage::error(format!("{shown}: two outputs would be written to this file")))
    }
}

impl Place {
    fn of(path: &Path) -> Self {
        let resolved = fs::canonicalize(path).ok().or_else(|| {
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
            let folder = fs::canonicalize(folder.unwrap_or(Path::new("."))).ok()?;
            Some(folder.join(path.file_name()?))
        });
        Place {
            shown: path.to_owned(),
            resolved: resolved.unwrap_or_else(|| path.to_owned()),
            existing: fs::metadata(path).ok().as_ref().and_then(file_number),
        }
    }

    fn is(&self, other: &Place) -> bool {
        let same_file = self.existing.is_some() && self.existing == other.existing;
        self.resolved == other.resolved || same_file
    }

    /// Whether the other place is this one, or an existing file in this folder.
    fn holds(&self, other: &Place) -> bool {
        let inside = other.resolved.parent() == Some(&self.resolved) && other.resolved.is_file();
        self.is(other) || inside
    }

    /// Whether it is a device or a pipe, which may be used for several outputs.
    fn is_device(&self) -> bool {
        fs::metadata(&self.shown).is_ok_and(|found| !found.is_file() && !found.is_dir())
    }
}

#[cfg(unix)]
fn file_number(found: &fs::Metadata) -> Option<FileNumber> {
    use std::os::unix::fs::MetadataExt;
    Some((found.dev(), found.ino()))
}

/// Elsewhere, resolved paths are all that is compared.
#[cfg(not(unix))]
fn file_number(_: &fs::Metadata) -> Option<FileNumber> {
    None
}

fn refuse_foreign(path: &Path) -> Result<()> {
    if !path.exists() || (path.is_file() && is_written_here(path)) {
        return Ok(());
    }
    let path = path.display();
    Err(Usage::error(format!(
        "{path}: exists and was not written by cutout; move it away or name another output with --output"
    )))
}

/// Returns an error unless the folder of `path` exists.
fn check_folder(path: &Path) -> Result<()> {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() && !folder.is_dir() => {
            Err(Usage::error(format!("{}: the folder does not exist", path.display())))
        }
        Some(_) | None => Ok(()),
    }
}

/// A name for the results of each picture: its stem, or its whole file name where two stems are equal.
pub(crate) fn result_names(pictures: &[PathBuf]) -> Vec<String> {
    let text =
        |part: Option<&std::ffi::OsStr>| part.unwrap_or_default().to_string_lossy().into_owned();
    // File systems that ignore case would take `A` and `a` for one file.
    let stems: Vec<String> =
        pictures.iter().map(|path| text(path.file_stem()).to_lowercase()).collect();
    let names: Vec<String> =
        pictures.iter().map(|path| text(path.file_name()).to_lowercase()).collect();
    let mut taken = HashMap::<&str, usize>::new();
    for name in stems.iter().chain(&names) {
        *taken.entry(name).or_default() += 1;
    }
    let is_free = |index: usize| {
        // A name without extension is its own stem.
        let own = 1 + usize::from(stems[index] == names[index]);
        taken[stems[index].as_str()] == own
    };
    let name = |(index, path): (usize, &PathBuf)| match is_free(index) {
        true => text(path.file_stem()),
        false => text(path.file_name()),
    };
    pictures.iter().enumerate().map(name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pictures_with_equal_stems_have_distinct_names() {
        let names = |paths: &[&str]| {
            result_names(&paths.iter().map(PathBuf::from).collect::<Vec<_>>()).join(" ")
        };
        assert_eq!(names(&["d/p.jpg", "d/q.png"]), "p q");
        assert_eq!(names(&["p.jpg", "p.jpeg", "q.png"]), "p.jpg p.jpeg q");
        assert_eq!(names(&["p.jpg", "P.jpeg"]), "p.jpg P.jpeg");
        // The stem of the second is the name of the first.
        assert_eq!(names(&["p.jpg", "p.jpg.png", "p.gif"]), "p.jpg p.jpg.png p.gif");
        assert_eq!(names(&["noextension"]), "noextension");
    }
}
