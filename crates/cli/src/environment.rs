//! Environment variables. Only this file reads them; the libraries read none. They give the folders of checkpoints and
//! programs, and never change what a model computes.

use std::ffi::OsString;
use std::path::PathBuf;

use cutout_video::Tools;

/// The variables in use.
#[derive(Clone, Debug, Default)]
pub(crate) struct Environment {
    /// The home folder.
    pub(crate) home: Option<PathBuf>,
    /// `XDG_CACHE_HOME`.
    pub(crate) caches: Option<PathBuf>,
    /// `HF_HUB_CACHE`.
    pub(crate) hub_cache: Option<PathBuf>,
    /// `HF_HOME`.
    pub(crate) hugging_face: Option<PathBuf>,
    /// `TORCH_HOME`.
    pub(crate) torch: Option<PathBuf>,
    /// The folders of `PATH`.
    pub(crate) programs: Vec<PathBuf>,
}

impl Environment {
    /// Reads the environment of this process.
    pub(crate) fn read() -> Self {
        let folder = |name| variable(name).map(PathBuf::from);
        let programs = variable("PATH").map(|path| std::env::split_paths(&path).collect());
        Environment {
            home: std::env::home_dir().filter(|home| !home.as_os_str().is_empty()),
            caches: folder("XDG_CACHE_HOME"),
            hub_cache: folder("HF_HUB_CACHE"),
            hugging_face: folder("HF_HOME"),
            torch: folder("TORCH_HOME"),
            programs: programs.unwrap_or_default(),
        }
    }

    /// The folder of caches: `XDG_CACHE_HOME`, or `.cache` in the home folder.
    pub(crate) fn caches(&self) -> Option<PathBuf> {
        self.caches.clone().or_else(|| Some(self.home.as_ref()?.join(".cache")))
    }

    /// The programs that read and write videos.
    pub(crate) fn video_tools(&self) -> Tools {
        Tools { ffmpeg: self.program("ffmpeg"), ffprobe: self.program("ffprobe") }
    }

    /// Path of an executable in the folders of `PATH`.
    pub(crate) fn program(&self, name: &str) -> Option<PathBuf> {
        let file = format!("{name}{}", std::env::consts::EXE_SUFFIX);
        self.programs.iter().map(|folder| folder.join(&file)).find(|path| is_executable(path))
    }
}

/// The value of a variable; `None` if it is unset or empty.
#[expect(clippy::disallowed_methods, reason = "the only file that reads the environment")]
fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

#[cfg(unix)]
fn is_executable(path: &std::path::Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    path.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

#[cfg(not(unix))]
fn is_executable(path: &std::path::Path) -> bool {
    path.is_file()
}
