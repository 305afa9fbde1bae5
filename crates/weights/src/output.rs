//! Writing a file whole or not at all, and the tensors that go into it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use cutout_tensor::{DType, Element, Tensor, TensorError, TensorType};
use half::{bf16, f16};

use crate::checkpoint::Checkpoint;
use crate::error::{Problem, WeightsError};

/// A tensor on its way into a file. It is loaded when its turn comes and dropped once it is written, so that a file of
/// any size is written in the memory of its largest tensor.
pub struct OutgoingTensor<'a> {
    /// Name in the new file.
    pub name: String,
    /// Type and shape it will have once loaded.
    pub ty: TensorType,
    load: Box<dyn Fn() -> Result<Tensor, WeightsError> + 'a>,
}

impl<'a> OutgoingTensor<'a> {
    /// A tensor that is already there.
    pub fn new(name: impl Into<String>, tensor: Tensor) -> Self {
        let ty = tensor.ty().clone();
        OutgoingTensor { name: name.into(), ty, load: Box::new(move || Ok(tensor.clone())) }
    }

    /// A tensor that `load` makes when it is needed.
    pub fn deferred(
        name: impl Into<String>,
        ty: TensorType,
        load: impl Fn() -> Result<Tensor, WeightsError> + 'a,
    ) -> Self {
        OutgoingTensor { name: name.into(), ty, load: Box::new(load) }
    }

    /// Every tensor of a checkpoint that can be loaded, under its own name.
    pub fn all_of(checkpoint: &'a Checkpoint) -> Vec<OutgoingTensor<'a>> {
        let loadable =
            checkpoint.tensors().iter().filter_map(|info| Some((info, info.loads_as()?)));
        loadable
            .map(|(info, ty)| {
                OutgoingTensor::deferred(&info.name, ty, || checkpoint.tensor(&info.name))
            })
            .collect()
    }

    /// The tensor, checked against its announcement.
    pub(crate) fn load(&self, file: &Path) -> Result<Tensor, WeightsError> {
        let tensor = (self.load)()?;
        if *tensor.ty() == self.ty {
            return Ok(tensor);
        }
        Err(self.refuse(file, Problem::invalid("type", &self.ty, tensor.ty())))
    }

    /// The error that names this tensor.
    pub(crate) fn refuse(&self, file: &Path, problem: impl Into<Problem>) -> WeightsError {
        WeightsError::Tensor {
            file: file.display().to_string(),
            tensor: self.name.clone(),
            problem: problem.into(),
        }
    }
}

/// Refuses two tensors of one name.
pub(crate) fn refuse_duplicates(
    path: &Path,
    tensors: &[OutgoingTensor<'_>],
) -> Result<(), WeightsError> {
    let mut names: Vec<&OutgoingTensor<'_>> = tensors.iter().collect();
    names.sort_by(|a, b| a.name.cmp(&b.name));
    match names.windows(2).find(|pair| pair[0].name == pair[1].name) {
        Some(pair) => Err(pair[0].refuse(path, Problem::Duplicate(pair[0].name.clone()))),
        None => Ok(()),
    }
}

/// The elements of a tensor as little-endian bytes, in row-major order.
pub(crate) fn element_bytes(tensor: &Tensor) -> Result<Vec<u8>, TensorError> {
    // The crate compiles on little-endian machines only, so the bytes are those of memory.
    fn copy<T: Element>(tensor: &Tensor) -> Result<Vec<u8>, TensorError> {
        match tensor.as_slice::<T>() {
            Ok(values) => Ok(bytemuck::cast_slice(values).to_vec()),
            Err(_) => Ok(bytemuck::cast_slice(&tensor.to_vec::<T>()?).to_vec()),
        }
    }
    match tensor.dtype() {
        DType::F32 => copy::<f32>(tensor),
        DType::F16 => copy::<f16>(tensor),
        DType::BF16 => copy::<bf16>(tensor),
        DType::I8 => copy::<i8>(tensor),
        DType::U8 => copy::<u8>(tensor),
        DType::I32 => copy::<i32>(tensor),
        DType::I64 => copy::<i64>(tensor),
        DType::Bool => copy::<bool>(tensor),
    }
}

/// Where a body writes to, with the errors of this crate.
pub(crate) struct Output<'a, W: Write> {
    path: &'a Path,
    writer: W,
}

impl<W: Write> Output<'_, W> {
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<(), WeightsError> {
        self.writer.write_all(bytes).map_err(|error| WeightsError::writing(self.path, error))
    }

    /// Zeros from byte `position` to the next multiple of `alignment`.
    pub(crate) fn pad(&mut self, position: u64, alignment: u64) -> Result<(), WeightsError> {
        let padding = position.next_multiple_of(alignment) - position;
        self.write(&vec![0; padding as usize])
    }
}

/// Writes `path` through a neighbouring temporary file that takes its place only when it is complete: whatever goes
/// wrong, the old content of `path` is untouched and nothing half-written is left.
pub(crate) fn write_whole(
    path: &Path,
    body: impl FnOnce(&mut Output<'_, BufWriter<File>>) -> Result<(), WeightsError>,
) -> Result<(), WeightsError> {
    let refuse = |error| WeightsError::writing(path, error);
    let (file, temporary) = create_beside(path).map_err(refuse)?;
    let mut output = Output { path, writer: BufWriter::with_capacity(1 << 20, file) };
    let result = body(&mut output).and_then(|()| {
        let file = output.writer.into_inner().map_err(|error| refuse(error.into_error()))?;
        // Some file systems notice only now that the disk is full.
        file.sync_all().map_err(refuse)?;
        fs::rename(&temporary, path).map_err(refuse)
    });
    if result.is_err() {
        // The first error is the one to report; a temporary file that cannot be removed is no news after it.
        let _ = fs::remove_file(&temporary);
    }
    result
}

/// A new file in the folder of `path`, under a name nobody else uses.
fn create_beside(path: &Path) -> io::Result<(File, PathBuf)> {
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    if path.file_name().is_none() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the path names no file"));
    }
    loop {
        let number = COUNTER.fetch_add(1, Ordering::Relaxed);
        // The process's number stands where whoever cleans up after a Ctrl-C looks for it.
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
    fn a_full_disk_is_called_so() {
        let mut output = Output { path: Path::new("model.gguf"), writer: Full };
        let error = output.write(b"x").unwrap_err();
        assert!(matches!(error, WeightsError::DiskFull { .. }), "{error}");
        assert_eq!(error.to_string(), "model.gguf: the disk is full; nothing was written");
    }

    #[test]
    fn a_failed_body_leaves_the_old_file_and_nothing_else() {
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
