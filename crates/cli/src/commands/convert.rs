//! `cutout convert`: a checkpoint in another format, under Meta's names, smaller if asked.

use std::cell::Cell;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use cutout_weights::layout::Model;
use cutout_weights::{
    Checkpoint, Encoding, Outgoing, OutgoingTensor, WeightsError, write_gguf, write_safetensors,
};

use crate::failure::Usage;
use crate::options::find_model;
use crate::output::check_folder;
use crate::progress::Progress;
use crate::{interrupt, screen, words};

/// Write a checkpoint as safetensors or GGUF, smaller if asked
#[derive(Args)]
#[command(after_help = "Examples:
  cutout convert sam_vit_b_01ec64.pth sam_vit_b.safetensors
  cutout convert sam_vit_b_01ec64.pth sam_vit_b-f16.safetensors --quantize f16
  cutout convert sam_vit_b_01ec64.pth sam_vit_b-q8_0.gguf --quantize q8_0

Biases, norms and other vectors stay in single precision, whatever is asked for: they are small,
and errors in them hurt most.")]
pub(crate) struct Convert {
    /// The checkpoint: safetensors, .pt, .pth or GGUF, in Meta's or Hugging Face's layout
    #[arg(value_name = "IN")]
    input: PathBuf,
    /// The new file, in which tensors have Meta's names; its extension says how: .safetensors or .gguf
    #[arg(value_name = "OUT", value_parser = parse_output)]
    output: PathBuf,
    /// How to store the numbers; as they are unless given. The blocks q8_0 and q4_0 exist in .gguf only
    #[arg(long, value_name = "TYPE")]
    quantize: Option<EncodingName>,
}

/// How numbers are stored.
#[derive(Clone, Copy, ValueEnum)]
enum EncodingName {
    /// Single precision
    F32,
    /// Half precision: half the size
    F16,
    /// The upper half of single precision: half the size
    Bf16,
    /// Blocks of signed bytes: about a quarter
    #[value(name = "q8_0")]
    Q8_0,
    /// Blocks of four-bit numbers: about an eighth, and visibly other masks
    #[value(name = "q4_0")]
    Q4_0,
}

impl EncodingName {
    fn encoding(self) -> Encoding {
        match self {
            EncodingName::F32 => Encoding::F32,
            EncodingName::F16 => Encoding::F16,
            EncodingName::Bf16 => Encoding::Bf16,
            EncodingName::Q8_0 => Encoding::Q8_0,
            EncodingName::Q4_0 => Encoding::Q4_0,
        }
    }
}

/// The formats that are written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Target {
    Safetensors,
    Gguf,
}

impl Target {
    fn of(path: &Path) -> Option<Target> {
        let extension = path.extension()?.to_str()?.to_ascii_lowercase();
        match extension.as_str() {
            "safetensors" => Some(Target::Safetensors),
            "gguf" => Some(Target::Gguf),
            _ => None,
        }
    }
}

fn parse_output(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    match Target::of(&path) {
        Some(_) => Ok(path),
        None => Err("the extension must be .safetensors or .gguf".to_owned()),
    }
}

impl Convert {
    pub(crate) fn run(self) -> Result<()> {
        let target =
            Target::of(&self.output).context("the parser lets known extensions through")?;
        let encoding = self.quantize.map_or(Encoding::Keep, EncodingName::encoding);
        if target == Target::Safetensors && encoding.is_quantized() {
            return Err(Usage::error(
                "safetensors holds no quantised blocks: write a .gguf, or use --quantize f16 or bf16",
            ));
        }
        check_folder(&self.output)?;
        let input = find_model(&self.input)?;
        if is_same_file(&input, &self.output) {
            return Err(Usage::error(format!(
                "{} is the file to read: write to another one",
                self.output.display()
            )));
        }
        let checkpoint = Checkpoint::open(&input)?;
        let model = Model::of(&checkpoint);
        let outgoing = match &model {
            Ok(model) => model.outgoing(),
            Err(error @ WeightsError::UnknownModel { .. }) => {
                screen::note(&format!("{error}: its names are kept"));
                Outgoing::of(&checkpoint)
            }
            Err(_) => return model.map(drop).map_err(Into::into),
        };
        for lost in &outgoing.left_out {
            screen::note(&format!("left out: {lost}"));
        }
        let count = outgoing.tensors.len();
        self.write(target, encoding, outgoing.tensors, &checkpoint)?;
        let size = |path: &Path| Ok::<u64, anyhow::Error>(fs::metadata(path)?.len());
        let (before, after) = (size(&input)?, size(&self.output)?);
        screen::print(&format!(
            "{}: {}, {} instead of {} ({:.0} %)",
            self.output.display(),
            words::counted(count, "tensor"),
            words::bytes(after),
            words::bytes(before),
            100.0 * after as f64 / before.max(1) as f64,
        ))
    }

    fn write(
        &self,
        target: Target,
        encoding: Encoding,
        tensors: Vec<OutgoingTensor<'_>>,
        checkpoint: &Checkpoint,
    ) -> Result<()> {
        let total = tensors.iter().map(OutgoingTensor::loaded_bytes).sum();
        let progress = Progress::bytes(total, "converting");
        let done = Cell::new(0);
        let tell = |bytes| {
            done.set(done.get() + bytes);
            progress.set(done.get());
        };
        let tensors = tensors.into_iter().map(|tensor| tensor.observed(tell));
        let metadata = checkpoint.metadata();
        interrupt::writes_beside(&self.output);
        match target {
            Target::Gguf => {
                let tensors: Vec<OutgoingTensor<'_>> = tensors.collect();
                Ok(write_gguf(&self.output, &tensors, metadata, encoding)?)
            }
            Target::Safetensors => {
                let tensors = tensors.map(|tensor| tensor.encoded(encoding));
                let tensors = tensors.collect::<Result<Vec<_>, _>>()?;
                Ok(write_safetensors(&self.output, &tensors, metadata)?)
            }
        }
    }
}

/// Whether two paths lead to one file.
fn is_same_file(one: &Path, other: &Path) -> bool {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        let file = |path: &Path| path.metadata().ok().map(|found| (found.dev(), found.ino()));
        file(one).is_some() && file(one) == file(other)
    }
    #[cfg(not(unix))]
    {
        let file = |path: &Path| fs::canonicalize(path).ok();
        file(one).is_some() && file(one) == file(other)
    }
}
