//! Temporary files and folders, and the removal of those that nobody finishes.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions, TryLockError};
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
                    enter(&temporary);
                    let kept = TemporaryFile { path: temporary, renamed: false };
                    if is_held(&file, &kept.path) {
                        return Ok((file, kept));
                    }
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
        loop {
            let path = parent.join(unused_name(FOLDER_SUFFIX));
            create_private(&path)?;
            enter(&path);
            let lock_path = path.join(LOCK);
            let lock = File::create(&lock_path).inspect_err(|_| {
                leave(&path);
                remove(&path);
            })?;
            let held = is_held(&lock, &lock_path);
            let folder = TemporaryFolder { path, _lock: lock };
            if held {
                return Ok(folder);
            }
        }
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

/// Locks a file that was just created, and returns whether it is safe from other processes. One that looked at it before it was
/// locked may hold the lock, or have removed the file already.
fn is_held(file: &File, path: &Path) -> bool {
    match file.try_lock() {
        Ok(()) => path.exists(),
        Err(TryLockError::WouldBlock) => false,
        // Where locks do not exist, a file is never taken for an abandoned one.
        Err(TryLockError::Error(_)) => true,
    }
}

/// Removes what killed processes left in a folder, the first time that this process writes there.
fn remove_abandoned_once(folder: &Path) {
    let known = fs::canonicalize(folder).unwrap_or_else(|_| folder.to_owned());
    if SEARCHED.lock().unwrap_or_else(PoisonError::into_inner).insert(known) {
        remove_abandoned(folder);
    }
}

fn remove_abandoned(folder: &Path) {
    let entries = fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
    for path in entries.filter(is_temporary).map(|entry| entry.path()) {
        // The lock is held until the file is gone: whoever gets it later finds no file.
        if let Some(_lock) = lock_of_abandoned(&path) {
            remove(&path);
        }
    }
}

fn is_temporary(entry: &fs::DirEntry) -> bool {
    let name = entry.file_name();
    let name = name.to_string_lossy();
    name.starts_with(PREFIX) && (name.ends_with(FILE_SUFFIX) || name.ends_with(FOLDER_SUFFIX))
}

/// The locked file of something that no process holds.
fn lock_of_abandoned(path: &Path) -> Option<File> {
    let lock = if path.is_dir() { path.join(LOCK) } else { path.to_owned() };
    let file = File::options().write(true).open(lock).ok()?;
    file.try_lock().is_ok().then_some(file)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;
    use std::thread;

    use super::*;

    /// As if other processes began to write to the same folder all the time.
    #[test]
    #[expect(clippy::disallowed_methods, reason = "stands for another process")]
    fn what_was_just_created_is_not_removed_by_others() {
        let folder = TemporaryFolder::create().unwrap();
        let ended = AtomicBool::new(false);
        let look = || {
            while !ended.load(Ordering::Relaxed) {
                remove_abandoned(folder.path());
            }
        };
        let lost = thread::scope(|scope| {
            scope.spawn(look);
            let target = folder.path().join("target");
            let write = |_: &usize| {
                let (file, temporary) = TemporaryFile::beside(&target).unwrap();
                thread::yield_now();
                let renamed = temporary.rename(&target);
                drop(file);
                renamed.is_err()
            };
            let lost = (0..2000).filter(write).count();
            ended.store(true, Ordering::Relaxed);
            lost
        });
        assert_eq!(lost, 0);
    }
}
