//! Atomic file output: a file is written completely or not at all.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::WeightsError;

/// A writer that reports the errors of this crate.
pub(crate) struct Output<'a, W: Write> {
    path: &'a Path,
    writer: W,
}

impl<W: Write> Output<'_, W> {
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<(), WeightsError> {
        self.writer.write_all(bytes).map_err(|error| WeightsError::writing(self.path, error))
    }

    /// Writes zeros from byte `position` to the next multiple of `alignment`.
    pub(crate) fn pad(&mut self, position: u64, alignment: u64) -> Result<(), WeightsError> {
        let padding = position.next_multiple_of(alignment) - position;
        self.write(&vec![0; padding as usize])
    }
}

/// Writes a temporary file beside `path` and renames it to `path` once it is complete. After an error the old content of
/// `path` is intact and the temporary file is removed. Devices and pipes are written directly: a rename would replace
/// them by a file.
pub(crate) fn write_whole<E: From<WeightsError>>(
    path: &Path,
    body: impl FnOnce(&mut Output<'_, BufWriter<File>>) -> Result<(), E>,
) -> Result<(), E> {
    let refuse = |error| WeightsError::writing(path, error);
    if fs::metadata(path).is_ok_and(|found| !found.is_file() && !found.is_dir()) {
        let device = OpenOptions::new().write(true).open(path).map_err(refuse)?;
        return fill(path, device, body).map(drop);
    }
    let (file, temporary) = create_beside(path).map_err(refuse)?;
    let result = fill(path, file, body).and_then(|file| {
        // Some file systems report a full disk only here.
        file.sync_all().map_err(refuse)?;
        Ok(fs::rename(&temporary, path).map_err(refuse)?)
    });
    if result.is_err() {
        // The first error is reported; a failure to remove the temporary file is ignored.
        let _ = fs::remove_file(&temporary);
    }
    result
}

/// Runs `body` on a buffered writer over `file`, and flushes it.
fn fill<E: From<WeightsError>>(
    path: &Path,
    file: File,
    body: impl FnOnce(&mut Output<'_, BufWriter<File>>) -> Result<(), E>,
) -> Result<File, E> {
    let mut output = Output { path, writer: BufWriter::with_capacity(1 << 20, file) };
    body(&mut output)?;
    let flushed = output.writer.into_inner();
    Ok(flushed.map_err(|error| WeightsError::writing(path, error.into_error()))?)
}

/// Creates a file with a unique name in the folder of `path`.
fn create_beside(path: &Path) -> io::Result<(File, PathBuf)> {
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    if path.file_name().is_none() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the path names no file"));
    }
    loop {
        let number = COUNTER.fetch_add(1, Ordering::Relaxed);
        // The clean-up after Ctrl-C finds temporary files by the process id in their name.
        let hidden = format!(".cutout-{}-weights-{number}.tmp", std::process::id());
        let temporary = path.with_file_name(hidden);
        match OpenOptions::new().write(true).create_new(true).open(&temporary) {
            Ok(file) => return Ok((file, temporary)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Full;

    impl Write for Full {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::StorageFull.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_full_disk_has_its_own_error() {
        let mut output = Output { path: Path::new("model.gguf"), writer: Full };
        let error = output.write(b"x").unwrap_err();
        assert!(matches!(error, WeightsError::DiskFull { .. }), "{error}");
        assert_eq!(error.to_string(), "model.gguf: the disk is full; nothing was written");
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn devices_are_written_directly() {
        use std::os::unix::fs::FileTypeExt;
        let folder = std::env::temp_dir().join(format!("cutout-device-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let [null, full] = ["null", "full"].map(|name| folder.join(name));
        std::os::unix::fs::symlink("/dev/null", &null).unwrap();
        std::os::unix::fs::symlink("/dev/full", &full).unwrap();
        write_whole(&null, |output| output.write(b"gone")).unwrap();
        assert!(fs::metadata(&null).unwrap().file_type().is_char_device());
        let error = write_whole(&full, |output| output.write(b"no room")).unwrap_err();
        assert!(matches!(error, WeightsError::DiskFull { .. }), "{error}");
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 2);
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_failed_write_keeps_the_old_file_and_removes_the_temporary_one() {
        let folder = std::env::temp_dir().join(format!("cutout-output-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("kept");
        fs::write(&path, "old").unwrap();
        let failed = write_whole(&path, |output| {
            output.write(b"half of the new")?;
            Err(WeightsError::DiskFull { path: path.clone() })
        });
        assert!(failed.is_err());
        assert_eq!(fs::read(&path).unwrap(), b"old");
        write_whole(&path, |output| output.write(b"new")).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
        fs::remove_dir_all(&folder).unwrap();
    }
}
