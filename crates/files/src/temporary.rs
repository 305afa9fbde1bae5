//! Temporary files and folders, and the removal of those that nobody finishes.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// How the names of temporary files and folders begin.
const PREFIX: &str = ".cutout-";
/// How the names of temporary files end.
const FILE_SUFFIX: &str = ".tmp";
/// How the names of temporary folders end.
const FOLDER_SUFFIX: &str = "-folder";
/// The file in a temporary folder that is locked as long as the folder is used.
const LOCK: &str = "lock";

/// What this process is writing now.
static UNFINISHED: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());
/// Folders that were searched for files of killed processes.
static SEARCHED: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

/// Removes everything temporary that this process has. For the end of the process: files that are being written are lost.
pub fn remove_unfinished() {
    for path in &*UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner) {
        remove(path);
    }
}

/// A file under a temporary name. Unless it is renamed, it is removed when dropped.
pub(crate) struct TemporaryFile {
    path: PathBuf,
    renamed: bool,
}

impl TemporaryFile {
    /// Creates a file in the folder of `path`, because a rename works within one file system only.
    pub(crate) fn beside(path: &Path) -> io::Result<(File, Self)> {
        remove_abandoned_once(folder_of(path));
        loop {
            let temporary = path.with_file_name(unused_name(FILE_SUFFIX));
            match OpenOptions::new().write(true).create_new(true).open(&temporary) {
                Ok(file) => {
                    // Where locks do not exist, the file is never taken for an abandoned one.
                    let _ignored = file.try_lock();
                    enter(&temporary);
                    return Ok((file, TemporaryFile { path: temporary, renamed: false }));
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
    }

    pub(crate) fn rename(mut self, path: &Path) -> io::Result<()> {
        fs::rename(&self.path, path)?;
        self.renamed = true;
        Ok(())
    }
}

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        leave(&self.path);
        if !self.renamed {
            remove(&self.path);
        }
    }
}

/// A folder among the system's temporary ones, removed with its files when dropped.
pub struct TemporaryFolder {
    path: PathBuf,
    /// Keeps the lock.
    _lock: File,
}

impl TemporaryFolder {
    /// Creates an empty folder.
    pub fn create() -> io::Result<Self> {
        let parent = std::env::temp_dir();
        remove_abandoned_once(&parent);
        let path = parent.join(unused_name(FOLDER_SUFFIX));
        create_private(&path)?;
        enter(&path);
        let lock = File::create(path.join(LOCK));
        let lock = lock.inspect_err(|_| {
            leave(&path);
            remove(&path);
        })?;
        let _ignored = lock.try_lock();
        Ok(TemporaryFolder { path, _lock: lock })
    }

    /// Path of the folder.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for TemporaryFolder {
    fn drop(&mut self) {
        leave(&self.path);
        remove(&self.path);
    }
}

/// Creates a folder that other users cannot look into.
fn create_private(path: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)
}

fn unused_name(suffix: &str) -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("{PREFIX}{}-{number}{suffix}", std::process::id())
}

fn enter(path: &Path) {
    UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner).insert(path.to_owned());
}

fn leave(path: &Path) {
    UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner).remove(path);
}

/// Removes a file or folder. A failure is ignored: something else went wrong before, or the next process removes it.
fn remove(path: &Path) {
    if fs::remove_file(path).is_err() {
        let _ignored = fs::remove_dir_all(path);
    }
}

fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        Some(_) | None => Path::new("."),
    }
}

/// Removes what killed processes left in a folder, the first time that this process writes there.
fn remove_abandoned_once(folder: &Path) {
    let known = fs::canonicalize(folder).unwrap_or_else(|_| folder.to_owned());
    if !SEARCHED.lock().unwrap_or_else(PoisonError::into_inner).insert(known) {
        return;
    }
    let entries = fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
    for path in entries.filter(is_temporary).map(|entry| entry.path()) {
        if is_abandoned(&path) {
            remove(&path);
        }
    }
}

fn is_temporary(entry: &fs::DirEntry) -> bool {
    let name = entry.file_name();
    let name = name.to_string_lossy();
    name.starts_with(PREFIX) && (name.ends_with(FILE_SUFFIX) || name.ends_with(FOLDER_SUFFIX))
}

/// Whether no process holds the lock.
fn is_abandoned(path: &Path) -> bool {
    let lock = if path.is_dir() { path.join(LOCK) } else { path.to_owned() };
    File::options().write(true).open(lock).is_ok_and(|file| file.try_lock().is_ok())
}
