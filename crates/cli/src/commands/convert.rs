//! `cutout convert`: writes a checkpoint in another format, under Meta's names.

use std::cell::Cell;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use cutout_weights::layout::Model;
use cutout_weights::{
    Checkpoint, Encoding, Outgoing, OutgoingTensor, WeightsError, write_gguf, write_safetensors,
};

use crate::claims::Claims;
use crate::failure::Usage;
use crate::options::ModelSource;
use crate::progress::Progress;
use crate::{format, stdio};

/// Convert a checkpoint to safetensors or GGUF, optionally in fewer bits
#[derive(Args)]
#[command(after_help = "Examples:
  cutout convert sam_vit_b_01ec64.pth sam_vit_b.safetensors
  cutout convert sam_vit_b_01ec64.pth sam_vit_b-f16.safetensors --quantize f16
  cutout convert sam_vit_b_01ec64.pth sam_vit_b-q8_0.gguf --quantize q8_0

With --quantize, biases, norms and other vectors are stored in single precision: they are small,
and rounding errors in them matter most.")]
pub(crate) struct Convert {
    /// Checkpoint: safetensors, .pt, .pth or GGUF, in Meta's or Hugging Face's layout; or built-in
    #[arg(value_name = "IN")]
    input: PathBuf,
    /// New file: .safetensors or .gguf. Its tensors have Meta's names
    #[arg(value_name = "OUT", value_parser = parse_output)]
    output: PathBuf,
    /// Number type in the new file; by default that of the checkpoint. q8_0 and q4_0 need .gguf
    #[arg(long, value_name = "TYPE")]
    quantize: Option<EncodingName>,
}

/// Number type in the new file.
#[derive(Clone, Copy, ValueEnum)]
enum EncodingName {
    /// Single precision
    F32,
    /// Half precision: half the size
    F16,
    /// bfloat16: half the size
    Bf16,
    /// Blocks of 8-bit integers: about a quarter of the size
    #[value(name = "q8_0")]
    Q8_0,
    /// Blocks of 4-bit integers: about an eighth of the size; masks differ visibly
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

/// Formats that can be written.
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
            Target::of(&self.output).context("the parser accepts known extensions only")?;
        let encoding = self.quantize.map_or(Encoding::Keep, EncodingName::encoding);
        if target == Target::Safetensors && encoding.is_quantized() {
            return Err(Usage::error(
                "safetensors holds no quantised blocks: write a .gguf, or use --quantize f16 or bf16",
            ));
        }
        let input = ModelSource::named(&self.input)?;
        let mut claims = Claims::default();
        input.file().into_iter().for_each(|file| claims.reads(file));
        claims.writes(&self.output)?;
        let checkpoint = input.checkpoint()?;
        let model = Model::of(&checkpoint);
        let outgoing = match &model {
            Ok(model) => model.outgoing(),
            Err(error @ WeightsError::UnknownModel { .. }) => {
                stdio::note(&format!("{error}; its names are kept"));
                Outgoing::of(&checkpoint)
            }
            Err(_) => return model.map(drop).map_err(Into::into),
        };
        for lost in &outgoing.left_out {
            stdio::note(&format!("left out: {lost}"));
        }
        let count = outgoing.tensors.len();
        self.write(target, encoding, outgoing.tensors, &checkpoint)?;
        let (before, after) = (checkpoint.file_bytes(), fs::metadata(&self.output)?.len());
        stdio::print(&format!(
            "{}: {}, {} instead of {} ({:.0} %)",
            self.output.display(),
            format::counted(count, "tensor"),
            format::bytes(after),
            format::bytes(before),
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
