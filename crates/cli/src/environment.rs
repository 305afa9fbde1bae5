//! The environment: the only place that reads it. Libraries never do, and no variable changes what a model computes;
//! these say where other programs keep their checkpoints, and where programs are.

use std::ffi::OsString;
use std::path::PathBuf;

use cutout_video::Tools;

/// What the environment says.
#[derive(Clone, Debug, Default)]
pub(crate) struct Environment {
    /// The user's folder.
    pub(crate) home: Option<PathBuf>,
    /// `XDG_CACHE_HOME`, in which programs keep what they downloaded.
    pub(crate) caches: Option<PathBuf>,
    /// `HF_HUB_CACHE`.
    pub(crate) hub_cache: Option<PathBuf>,
    /// `HF_HOME`.
    pub(crate) hugging_face: Option<PathBuf>,
    /// `TORCH_HOME`.
    pub(crate) torch: Option<PathBuf>,
    /// The folders that programs are looked for in.
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

    /// The folder in which programs keep what they downloaded.
    pub(crate) fn caches(&self) -> Option<PathBuf> {
        self.caches.clone().or_else(|| Some(self.home.as_ref()?.join(".cache")))
    }

    /// The programs that read and write videos.
    pub(crate) fn video_tools(&self) -> Tools {
        Tools { ffmpeg: self.program("ffmpeg"), ffprobe: self.program("ffprobe") }
    }

    /// Where a program is, if it can be called by its name.
    pub(crate) fn program(&self, name: &str) -> Option<PathBuf> {
        let file = format!("{name}{}", std::env::consts::EXE_SUFFIX);
        self.programs.iter().map(|folder| folder.join(&file)).find(|path| is_executable(path))
    }
}

/// A variable that is set and not empty.
#[expect(clippy::disallowed_methods, reason = "this is the one place")]
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
