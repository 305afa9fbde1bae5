//! Files that appear complete or not at all.
//!
//! A file is written under a temporary name beside its place and renamed when it is complete. Temporary files are removed
//! after an error, by [`remove_unfinished`] when the process is interrupted, and by the next process that writes to the
//! same folder if this one is killed: a running process holds a lock on its own, so others leave them alone.

mod origin;
mod temporary;

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

pub use origin::{SOFTWARE, is_written_here};
pub use temporary::{TemporaryFolder, remove_unfinished};

use temporary::TemporaryFile;

/// Bytes that are collected before they are written.
const BUFFER: usize = 1 << 20;

/// Runs `fill` on a temporary file beside `path` and renames it to `path`: readers see the old file or the complete new one.
/// A link is followed; devices and pipes are written directly. `fail` turns an error of the system into the caller's.
pub fn replace<E>(
    path: &Path,
    fail: impl Fn(io::Error) -> E,
    fill: impl FnOnce(&mut BufWriter<File>) -> Result<(), E>,
) -> Result<(), E> {
    let mut pending = PendingFile::create(path).map_err(&fail)?;
    fill(&mut pending.writer)?;
    pending.finish().map_err(fail)
}

/// A file that is written bit by bit and appears under its name when it is finished. Dropped unfinished, it leaves nothing.
pub struct PendingFile {
    writer: BufWriter<File>,
    /// The temporary file and its final name; `None` for devices and pipes.
    place: Option<(TemporaryFile, PathBuf)>,
}

impl PendingFile {
    /// Begins a file beside `path`. A link is followed. Devices and pipes are written directly, because a rename would
    /// replace them by a file.
    pub fn create(path: &Path) -> io::Result<Self> {
        let found = fs::metadata(path).ok();
        if found.as_ref().is_some_and(fs::Metadata::is_dir) || path.file_name().is_none() {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        let (file, place) = if found.is_some_and(|found| !found.is_file()) {
            (OpenOptions::new().write(true).open(path)?, None)
        } else {
            let target = followed(path);
            let (file, temporary) = TemporaryFile::beside(&target)?;
            (file, Some((temporary, target)))
        };
        Ok(PendingFile { writer: BufWriter::with_capacity(BUFFER, file), place })
    }

    /// Gives the file its name.
    pub fn finish(self) -> io::Result<()> {
        let file = self.writer.into_inner().map_err(io::IntoInnerError::into_error)?;
        let Some((temporary, target)) = self.place else { return Ok(()) };
        // Some file systems report a full disk only here.
        file.sync_all()?;
        temporary.rename(&target)
    }
}

impl Write for PendingFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.writer.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.writer.flush()
    }
}

/// The file that a link leads to, or the path itself.
fn followed(path: &Path) -> PathBuf {
    let is_link = fs::symlink_metadata(path).is_ok_and(|found| found.is_symlink());
    is_link.then(|| fs::canonicalize(path).ok()).flatten().unwrap_or_else(|| path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            let name = format!("cutout-files-{name}-{}", std::process::id());
            let folder = std::env::temp_dir().join(name);
            fs::create_dir_all(&folder).unwrap();
            Scratch(folder)
        }

        fn names(&self) -> Vec<String> {
            let entries = fs::read_dir(&self.0).unwrap().map(|entry| entry.unwrap().file_name());
            let mut names: Vec<String> = entries.map(|name| name.into_string().unwrap()).collect();
            names.sort();
            names
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ignored = fs::remove_dir_all(&self.0);
        }
    }

    fn put(path: &Path, text: &str) -> io::Result<()> {
        replace(path, |error| error, |writer| writer.write_all(text.as_bytes()))
    }

    #[test]
    fn a_failed_write_keeps_the_old_file_and_leaves_no_other() {
        let folder = Scratch::new("kept");
        let path = folder.0.join("kept");
        put(&path, "old").unwrap();
        let failed = replace(
            &path,
            |error| error,
            |writer| {
                writer.write_all(b"half of the new")?;
                Err(io::ErrorKind::StorageFull.into())
            },
        );
        assert_eq!(failed.unwrap_err().kind(), io::ErrorKind::StorageFull);
        assert_eq!(fs::read(&path).unwrap(), b"old");
        put(&path, "new").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(folder.names(), ["kept"]);
    }

    #[test]
    fn folders_are_refused() {
        let folder = Scratch::new("folders");
        for path in [&folder.0, Path::new("/"), Path::new("")] {
            assert_eq!(put(path, "x").unwrap_err().kind(), io::ErrorKind::IsADirectory, "{path:?}");
        }
        let nowhere = put(&folder.0.join("no/such"), "x").unwrap_err();
        assert_eq!(nowhere.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn files_that_a_killed_process_left_are_removed_by_the_next_write() {
        let folder = Scratch::new("abandoned");
        let [left, held, foreign] =
            [".cutout-1-1.tmp", ".cutout-2-2.tmp", ".other.tmp"].map(|name| folder.0.join(name));
        for path in [&left, &held, &foreign] {
            fs::write(path, "half").unwrap();
        }
        let running = File::options().write(true).open(&held).unwrap();
        running.lock().unwrap();
        put(&folder.0.join("a"), "x").unwrap();
        assert_eq!(folder.names(), [".cutout-2-2.tmp", ".other.tmp", "a"]);
    }

    #[test]
    #[cfg(unix)]
    fn pipes_are_written_directly_and_stay_pipes() {
        use std::os::unix::fs::FileTypeExt;
        use std::process::{Command, Stdio};
        let folder = Scratch::new("pipes");
        let pipe = folder.0.join("pipe");
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let reader = Command::new("cat").arg(&pipe).stdout(Stdio::piped()).spawn().unwrap();
        let mut pending = PendingFile::create(&pipe).unwrap();
        pending.write_all(b"through the pipe").unwrap();
        pending.finish().unwrap();
        assert_eq!(reader.wait_with_output().unwrap().stdout, b"through the pipe");
        assert!(fs::metadata(&pipe).unwrap().file_type().is_fifo());
        assert_eq!(folder.names(), ["pipe"]);
    }

    #[test]
    #[cfg(unix)]
    fn links_are_followed() {
        let folder = Scratch::new("links");
        let (target, link) = (folder.0.join("target"), folder.0.join("link"));
        put(&target, "old").unwrap();
        std::os::unix::fs::symlink("target", &link).unwrap();
        put(&link, "new").unwrap();
        assert_eq!(fs::read(&target).unwrap(), b"new");
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn devices_are_written_directly() {
        use std::os::unix::fs::FileTypeExt;
        let folder = Scratch::new("devices");
        let [null, full] = ["null", "full"].map(|name| folder.0.join(name));
        std::os::unix::fs::symlink("/dev/null", &null).unwrap();
        std::os::unix::fs::symlink("/dev/full", &full).unwrap();
        put(&null, "gone").unwrap();
        assert!(fs::metadata(&null).unwrap().file_type().is_char_device());
        assert_eq!(put(&full, "no room").unwrap_err().kind(), io::ErrorKind::StorageFull);
        assert_eq!(folder.names(), ["full", "null"]);
    }
}
