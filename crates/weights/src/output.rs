//! Atomic file output: a file is written completely or not at all.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

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

/// Writes a file that appears once it is complete; see [`cutout_files::replace`].
pub(crate) fn write_whole<E: From<WeightsError>>(
    path: &Path,
    body: impl FnOnce(&mut Output<'_, &mut BufWriter<File>>) -> Result<(), E>,
) -> Result<(), E> {
    let fail = |error| E::from(WeightsError::writing(path, error));
    cutout_files::replace(path, fail, |writer| body(&mut Output { path, writer }))
}

#[cfg(test)]
mod tests {
    use std::io;

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
}
