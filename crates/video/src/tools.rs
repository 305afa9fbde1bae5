//! Programs of others that we call.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

/// Where the programs are that read and write video files; `None` where there is none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tools {
    /// Decodes and encodes.
    pub ffmpeg: Option<PathBuf>,
    /// Tells frame rate and length; without it both are unknown.
    pub ffprobe: Option<PathBuf>,
}

impl Tools {
    /// Looks for them in the folders of a `PATH` variable.
    pub fn find(path_variable: &OsStr) -> Self {
        Tools {
            ffmpeg: find_program("ffmpeg", path_variable),
            ffprobe: find_program("ffprobe", path_variable),
        }
    }
}

/// The first file called `name` that may be run, in the folders of a `PATH` variable. Relative folders are passed over:
/// what runs should not depend on where somebody stands.
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
