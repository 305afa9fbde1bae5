//! External programs.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

/// Paths of the programs that read and write video files; `None` for a missing program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tools {
    /// Decodes and encodes video files.
    pub ffmpeg: Option<PathBuf>,
    /// Reports frame rate and length; without it both are unknown.
    pub ffprobe: Option<PathBuf>,
}

impl Tools {
    /// Searches the folders of a `PATH` variable.
    pub fn find(path_variable: &OsStr) -> Self {
        Tools {
            ffmpeg: find_program("ffmpeg", path_variable),
            ffprobe: find_program("ffprobe", path_variable),
        }
    }
}

/// The first executable file called `name` in the folders of a `PATH` variable. Relative folders are skipped, so that the
/// result does not depend on the current folder.
pub fn find_program(name: &str, path_variable: &OsStr) -> Option<PathBuf> {
    let file = format!("{name}{}", env::consts::EXE_SUFFIX);
    let folders = env::split_paths(path_variable).filter(|folder| folder.is_absolute());
    folders.map(|folder| folder.join(&file)).find(|path| is_program(path))
}

#[cfg(unix)]
fn is_program(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    fs::metadata(path).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

#[cfg(not(unix))]
fn is_program(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| found.is_file())
}
