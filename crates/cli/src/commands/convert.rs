//! `cutout convert`: writes a checkpoint in another format, under Meta's names.

use std::cell::Cell;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use cutout_sam::StoredProfile;
use cutout_weights::layout::Model;
use cutout_weights::{
    Checkpoint, Encoding, Metadata, Outgoing, OutgoingTensor, WeightsError, write_gguf,
    write_safetensors,
};

use crate::card::{Candidate, Questions, table};
use crate::claims::Claims;
use crate::failure::Usage;
use crate::options::{ModelSource, PrecisionName};
use crate::progress::Progress;
use crate::{format, picture, stdio};

mod measure;

/// Most pictures of a folder on which the loss is measured.
const MAX_PICTURES: usize = 8;

/// Convert a checkpoint to safetensors or GGUF, optionally in fewer bits
#[derive(Args)]
#[command(after_help = "Examples:
  cutout convert sam_vit_b_01ec64.pth sam_vit_b.safetensors
  cutout convert sam_vit_b_01ec64.pth sam_vit_b-f16.safetensors --quantize f16
  cutout convert sam_vit_b_01ec64.pth sam_vit_b-q8_0.gguf --quantize q8_0 --images photos

With --quantize, biases, norms and other vectors are stored in single precision: they are small,
and rounding errors in them matter most. What the fewer bits cost is then measured and printed, as
by `cutout compare`: answers of the new file beside the checkpoint's, on pictures or a drawn one.
q8_0 and q4_0 files also get a profile for `--precision int8`, which `cutout info` shows: if masks
in int8 have a mean IoU below 0.98 with those in f32, the layers that cost most stay in bf16. A
cutout.toml beside the file, or --profile, goes before it; parts that it does not name stay.")]
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
    /// Picture, or folder of pictures (the first 8 are taken), on which the loss is measured; by default one that is drawn
    #[arg(long, value_name = "DIR", requires = "quantize", conflicts_with = "no_card")]
    images: Option<PathBuf>,
    /// Do not measure what --quantize costs, and store no profile
    #[arg(long, requires = "quantize")]
    no_card: bool,
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

    /// Name on the command line.
    fn name(self) -> &'static str {
        match self {
            EncodingName::F32 => "f32",
            EncodingName::F16 => "f16",
            EncodingName::Bf16 => "bf16",
            EncodingName::Q8_0 => "q8_0",
            EncodingName::Q4_0 => "q4_0",
        }
    }

    /// The precisions that such a file is made for, besides f32.
    fn precision(self) -> Option<PrecisionName> {
        match self {
            EncodingName::F32 | EncodingName::F16 => None,
            EncodingName::Bf16 => Some(PrecisionName::Bf16),
            EncodingName::Q8_0 | EncodingName::Q4_0 => Some(PrecisionName::Int8),
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

/// What is written besides the tensors.
struct File {
    target: Target,
    encoding: Encoding,
    metadata: Metadata,
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
        let pictures = self.pictures()?;
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
        let mut metadata = checkpoint.metadata().clone();
        if self.quantize.is_some() {
            // It was measured on other numbers.
            metadata.remove(StoredProfile::KEY);
        }
        let file = File { target, encoding, metadata };
        self.write(&file, outgoing.tensors)?;
        if let (Ok(model), false, true) = (&model, self.no_card, encoding.is_quantized()) {
            self.store_profile(file, model, &pictures)?;
        }
        let (before, after) = (checkpoint.file_bytes(), fs::metadata(&self.output)?.len());
        stdio::print(&format!(
            "{}: {}, {} instead of {} ({:.0} %)",
            self.output.display(),
            format::counted(count, "tensor"),
            format::bytes(after),
            format::bytes(before),
            100.0 * after as f64 / before.max(1) as f64,
        ))?;
        match self.quantize {
            Some(name) if model.is_ok() && !self.no_card => self.card(&input, name, pictures),
            Some(_) | None => Ok(()),
        }
    }

    /// The pictures of the card. They are opened before anything is written, so that a wrong path costs no time.
    fn pictures(&self) -> Result<Vec<PathBuf>> {
        let Some(images) = &self.images else {
            return Ok(Vec::new());
        };
        let mut pictures = picture::pictures_in(images)?;
        pictures.truncate(MAX_PICTURES);
        for path in &pictures {
            picture::open(path)?;
        }
        Ok(pictures)
    }

    /// Prints how far the new file's answers are from the checkpoint's.
    fn card(&self, input: &ModelSource, name: EncodingName, pictures: Vec<PathBuf>) -> Result<()> {
        let output = ModelSource::File(self.output.clone());
        let reference =
            Candidate { name: "before".to_owned(), source: input, precision: PrecisionName::F32 };
        let run_in = |precision: PrecisionName| Candidate {
            name: format!("{} in {}", name.name(), precision.name()),
            source: &output,
            precision,
        };
        let others: Vec<_> = [Some(PrecisionName::F32), name.precision()]
            .into_iter()
            .flatten()
            .map(run_in)
            .collect();
        match (Questions { pictures, ..Questions::default() }).rows(&reference, &others) {
            Ok(rows) => stdio::print(&format!("\n{}", table(&rows))),
            Err(error) => {
                stdio::warn(&format!("the file is written, but not compared: {error:#}"));
                Ok(())
            }
        }
    }

    /// Measures what int8 costs the file that was written, and writes it again with the profile that follows.
    fn store_profile(&self, mut file: File, model: &Model<'_>, pictures: &[PathBuf]) -> Result<()> {
        let written = Checkpoint::open(&self.output)?;
        match measure::measured(&written, pictures) {
            Ok(None) => Ok(()),
            Ok(Some(text)) => {
                file.metadata.insert(StoredProfile::KEY.to_owned(), text.into());
                self.write(&file, model.outgoing().tensors)
            }
            Err(error) => {
                stdio::warn(&format!("the file is written, without a profile: {error:#}"));
                Ok(())
            }
        }
    }

    fn write(&self, file: &File, tensors: Vec<OutgoingTensor<'_>>) -> Result<()> {
        let File { target, encoding, metadata } = file;
        let total = tensors.iter().map(OutgoingTensor::loaded_bytes).sum();
        let progress = Progress::bytes(total, "converting");
        let done = Cell::new(0);
        let tell = |bytes| {
            done.set(done.get() + bytes);
            progress.set(done.get());
        };
        let tensors = tensors.into_iter().map(|tensor| tensor.observed(tell));
        match target {
            Target::Gguf => {
                let tensors: Vec<OutgoingTensor<'_>> = tensors.collect();
                Ok(write_gguf(&self.output, &tensors, metadata, *encoding)?)
            }
            Target::Safetensors => {
                let tensors = tensors.map(|tensor| tensor.encoded(*encoding));
                let tensors = tensors.collect::<Result<Vec<_>, _>>()?;
                Ok(write_safetensors(&self.output, &tensors, metadata)?)
            }
        }
    }
}
