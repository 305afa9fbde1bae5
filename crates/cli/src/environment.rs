//! Environment variables. Only this file reads them; the libraries read none. They give the folders of checkpoints and
//! programs and the hosts of `cutout pull`, and never change what a model computes.

use std::ffi::OsString;
use std::path::PathBuf;

use cutout_video::Tools;

use crate::pull::Token;

/// The variables in use.
#[derive(Clone, Debug, Default)]
pub(crate) struct Environment {
    /// The home folder.
    pub(crate) home: Option<PathBuf>,
    /// `XDG_CACHE_HOME`.
    pub(crate) caches: Option<PathBuf>,
    /// `HF_HUB_CACHE`, or its older name `HUGGINGFACE_HUB_CACHE`.
    pub(crate) hub_cache: Option<PathBuf>,
    /// `HF_HOME`.
    pub(crate) hugging_face: Option<PathBuf>,
    /// `TORCH_HOME`.
    pub(crate) torch: Option<PathBuf>,
    /// `HF_ENDPOINT`.
    pub(crate) hub_endpoint: Option<String>,
    /// `HF_TOKEN`.
    pub(crate) hub_token: Option<Token>,
    /// `HF_TOKEN_PATH`.
    pub(crate) hub_token_file: Option<PathBuf>,
    /// Whether `HF_HUB_OFFLINE` is set to 1, true, yes or on.
    pub(crate) offline: bool,
    /// `CUTOUT_MIRRORS`, separated by commas.
    pub(crate) mirrors: Vec<String>,
    /// The folders of `PATH`.
    pub(crate) programs: Vec<PathBuf>,
    /// Place of this process among those of a job, from 0 on: `SLURM_ARRAY_TASK_ID` less `SLURM_ARRAY_TASK_MIN`, or
    /// Kubernetes' `JOB_COMPLETION_INDEX`.
    pub(crate) job_index: Option<u32>,
    /// Processes of the job: `SLURM_ARRAY_TASK_COUNT`.
    pub(crate) job_count: Option<u32>,
}

impl Environment {
    /// Reads the environment of this process.
    pub(crate) fn read() -> Self {
        let folder = |name| variable(name).map(PathBuf::from);
        let text = |name| variable(name).and_then(|value| value.into_string().ok());
        let number = |name| text(name).and_then(|value| value.parse::<u32>().ok());
        let task = number("SLURM_ARRAY_TASK_ID")
            .and_then(|id| id.checked_sub(number("SLURM_ARRAY_TASK_MIN").unwrap_or(0)));
        let programs = variable("PATH").map(|path| std::env::split_paths(&path).collect());
        Environment {
            home: std::env::home_dir().filter(|home| !home.as_os_str().is_empty()),
            caches: folder("XDG_CACHE_HOME"),
            hub_cache: folder("HF_HUB_CACHE").or_else(|| folder("HUGGINGFACE_HUB_CACHE")),
            hugging_face: folder("HF_HOME"),
            torch: folder("TORCH_HOME"),
            hub_endpoint: text("HF_ENDPOINT"),
            hub_token: text("HF_TOKEN").and_then(|token| Token::new(&token)),
            hub_token_file: folder("HF_TOKEN_PATH"),
            offline: text("HF_HUB_OFFLINE").is_some_and(|value| is_true(&value)),
            mirrors: text("CUTOUT_MIRRORS").map(|list| split(&list)).unwrap_or_default(),
            programs: programs.unwrap_or_default(),
            job_index: task.or_else(|| number("JOB_COMPLETION_INDEX")),
            job_count: number("SLURM_ARRAY_TASK_COUNT"),
        }
    }

    /// The folder of caches: `XDG_CACHE_HOME`, or `.cache` in the home folder.
    pub(crate) fn caches(&self) -> Option<PathBuf> {
        self.caches.clone().or_else(|| Some(self.home.as_ref()?.join(".cache")))
    }

    /// The folder of Hugging Face's tools: `HF_HOME`, or `huggingface` among the caches.
    pub(crate) fn hugging_face(&self) -> Option<PathBuf> {
        self.hugging_face.clone().or_else(|| Some(self.caches()?.join("huggingface")))
    }

    /// The file in which Hugging Face's tools keep the token.
    pub(crate) fn token_file(&self) -> Option<PathBuf> {
        self.hub_token_file.clone().or_else(|| Some(self.hugging_face()?.join("token")))
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

/// Whether a switch of Hugging Face's tools is on.
fn is_true(value: &str) -> bool {
    ["1", "true", "yes", "on"].iter().any(|name| name.eq_ignore_ascii_case(value))
}

/// The parts of a list with commas.
fn split(list: &str) -> Vec<String> {
    list.split(',').map(|part| part.trim().to_owned()).filter(|part| !part.is_empty()).collect()
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
