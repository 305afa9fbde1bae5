//! Where files are kept: the cache of Hugging Face's tools, and the one of PyTorch for Meta's own host. Both are searched by
//! `cutout models`.
//!
//! ```text
//! hub/models--facebook--sam2.1-hiera-tiny/
//!   blobs/<SHA-256>                                the content; <SHA-256>.incomplete while it is fetched
//!   snapshots/<commit>/sam2.1_hiera_tiny.pt        a link to the content
//!   refs/main                                      the commit
//! hub/.locks/models--facebook--sam2.1-hiera-tiny/<SHA-256>.lock
//! torch/hub/checkpoints/sam_vit_b_01ec64.pth
//! ```

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use super::{Origin, PullError, Wanted, is_commit};
use crate::checkpoints;
use crate::environment::Environment;

/// Most snapshots of a repository that are searched.
const MOST_SNAPSHOTS: usize = 1024;

/// Place of one file in a cache.
#[derive(Debug)]
pub(super) enum Place {
    /// A file of a repository in the cache of Hugging Face.
    Hub {
        /// `hub`.
        root: PathBuf,
        /// `models--owner--name`.
        folder: String,
        file: String,
    },
    /// A file in a plain folder.
    Plain { path: PathBuf },
}

impl Place {
    /// The place of a file; `None` without a home folder.
    pub(super) fn of(wanted: &Wanted, environment: &Environment) -> Option<Place> {
        match &wanted.origin {
            Origin::Hub { repository } => Some(Place::Hub {
                root: checkpoints::hub_folder(environment)?,
                folder: format!("models--{}", repository.replace('/', "--")),
                file: wanted.file.clone(),
            }),
            Origin::Meta { .. } => {
                let folder = checkpoints::torch_folder(environment)?;
                Some(Place::Plain { path: folder.join(&wanted.file) })
            }
        }
    }

    /// The file, if it is there. Its size is compared if it is known; the content is not read.
    pub(super) fn existing(&self, bytes: Option<u64>) -> Option<PathBuf> {
        let fits = |path: &PathBuf| {
            let length = fs::metadata(path).ok().filter(fs::Metadata::is_file)?.len();
            bytes.is_none_or(|bytes| bytes == length).then_some(())
        };
        match self {
            Place::Plain { path } => Some(path.clone()).filter(|path| fits(path).is_some()),
            Place::Hub { root, folder, file } => {
                let repository = root.join(folder);
                let main = fs::read_to_string(repository.join("refs/main")).ok();
                let main =
                    main.map(|commit| commit.trim().to_owned()).filter(|text| is_commit(text));
                // A file of known size can be in any snapshot; another one must be the newest.
                let others = if bytes.is_some() { snapshots(&repository) } else { Vec::new() };
                let names = main.into_iter().chain(others);
                let mut paths =
                    names.map(|name| repository.join("snapshots").join(name).join(file));
                paths.find(|path| fits(path).is_some())
            }
        }
    }

    /// Where the content of a file ends up.
    fn content(&self, sha256: &str) -> PathBuf {
        match self {
            Place::Hub { root, folder, .. } => root.join(folder).join("blobs").join(sha256),
            Place::Plain { path } => path.clone(),
        }
    }

    /// Whether the content is there already.
    pub(super) fn has_content(&self, sha256: &str, bytes: u64) -> bool {
        let found = fs::metadata(self.content(sha256));
        found.is_ok_and(|found| found.is_file() && found.len() == bytes)
    }

    /// Makes the folders, and returns the part file and the lock that is held while it is written. Hugging Face's tools use
    /// the same lock.
    pub(super) fn prepare(&self, sha256: &str) -> Result<(PathBuf, Lock), PullError> {
        let content = self.content(sha256);
        let part = with_ending(&content, ".incomplete");
        make_parent(&content)?;
        let lock = match self {
            Place::Hub { root, folder, .. } => {
                root.join(".locks").join(folder).join(format!("{sha256}.lock"))
            }
            // PyTorch's cache uses no lock files.
            Place::Plain { .. } => with_ending(&part, ".lock"),
        };
        make_parent(&lock)?;
        Ok((part, Lock::take(&lock)?))
    }

    /// Moves a complete part file into place, and links it under its name.
    pub(super) fn keep(
        &self,
        part: &Path,
        sha256: &str,
        commit: Option<&str>,
    ) -> Result<PathBuf, PullError> {
        let content = self.content(sha256);
        fs::rename(part, &content).map_err(|source| failure(&content, source))?;
        if let Place::Plain { .. } = self {
            // Another program would only find its own lock missing.
            let _ignored = fs::remove_file(with_ending(part, ".lock"));
        }
        self.link(sha256, commit)
    }

    /// Links existing content under its name. A host that is not a hub names no commit: the start of the digest stands for
    /// it, which Hugging Face's tools replace when they next ask the hub.
    pub(super) fn link(&self, sha256: &str, commit: Option<&str>) -> Result<PathBuf, PullError> {
        let (root, folder, file) = match self {
            Place::Hub { root, folder, file } => (root, folder, file),
            Place::Plain { path } => return Ok(path.clone()),
        };
        let repository = root.join(folder);
        let name = commit.unwrap_or(&sha256[..40]);
        let path = repository.join("snapshots").join(name).join(file);
        make_parent(&path)?;
        let up = "../".repeat(2 + file.matches('/').count());
        link_or_move(&format!("{up}blobs/{sha256}"), &self.content(sha256), &path)?;
        let reference = repository.join("refs/main");
        if commit.is_some() || !reference.exists() {
            make_parent(&reference)?;
            cutout_imaging::write(&reference, name.as_bytes())
                .map_err(|error| failure(&reference, io::Error::other(error)))?;
        }
        Ok(path)
    }
}

/// Names of the snapshots of a repository, sorted.
fn snapshots(repository: &Path) -> Vec<String> {
    let entries = fs::read_dir(repository.join("snapshots")).into_iter().flatten();
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut names: Vec<String> = names.take(MOST_SNAPSHOTS).collect();
    names.sort();
    names
}

/// Makes `path` a link to `target`. Systems without links get the content itself, as with Hugging Face's tools.
fn link_or_move(target: &str, content: &Path, path: &Path) -> Result<(), PullError> {
    let fail = |source| failure(path, source);
    // A dangling link of an earlier, removed content.
    if path.symlink_metadata().is_ok() {
        fs::remove_file(path).map_err(fail)?;
    }
    #[cfg(unix)]
    let linked = std::os::unix::fs::symlink(target, path);
    #[cfg(windows)]
    let linked = std::os::windows::fs::symlink_file(target.replace('/', "\\"), path);
    #[cfg(not(any(unix, windows)))]
    let linked: io::Result<()> = Err(io::Error::other(target));
    linked.or_else(|_| fs::rename(content, path)).map_err(fail)
}

/// A path with a longer name.
fn with_ending(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.to_owned().into_os_string();
    name.push(ending);
    PathBuf::from(name)
}

fn make_parent(path: &Path) -> Result<(), PullError> {
    let folder = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder).map_err(|source| failure(folder, source))
}

fn failure(path: &Path, source: io::Error) -> PullError {
    PullError::File { path: path.to_owned(), source }
}

/// A lock on a file, released when dropped.
pub(super) struct Lock {
    _file: File,
}

impl Lock {
    fn take(path: &Path) -> Result<Lock, PullError> {
        let open = OpenOptions::new().write(true).create(true).truncate(false).open(path);
        let file = open.map_err(|source| failure(path, source))?;
        match file.try_lock() {
            // File systems without locks: two processes at once would spoil each other's part, which the digest shows.
            Ok(()) | Err(TryLockError::Error(_)) => Ok(Lock { _file: file }),
            Err(TryLockError::WouldBlock) => Err(PullError::Locked { path: path.to_owned() }),
        }
    }
}
