//! Times kernels and models on the first GPU, beside PyTorch where a Python with it is given: `cargo xtask bench cuda`.
//!
//! Every line of the table is one piece of work with its time alone (median of single runs, each waited for) and back to back. Models have
//! random weights. With `--python`, `fixtures/bench_cuda.py` times the same work with PyTorch on the same card, right after.
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a measurement, not a library")]

mod kernels;
mod models;
mod torch;
mod work;

use std::path::PathBuf;

use cutout_graph::{Device, Profile};
use cutout_sam::device;
use serde_json::{Value, json};

use work::{Row, Timer};

const HELP: &str = "\
Times kernels and models on the first GPU.

  --only PART            only work whose name contains this; may be given several times
  --json FILE            the table as JSON too
  --python PROGRAM       a Python with PyTorch: the same work is timed with it
  --segment-anything DIR, --sam2 DIR
                         clones of Meta's repositories: their image encoders are timed with random weights
  --compile PART         also torch.compile, for encoders whose name contains this; may be given several times
  --script FILE          the script that Python runs; by default fixtures/bench_cuda.py";

/// What the command line asks for.
#[derive(Default)]
pub(crate) struct Options {
    only: Vec<String>,
    json: Option<PathBuf>,
    pub(crate) python: Option<PathBuf>,
    pub(crate) script: Option<PathBuf>,
    /// Handed to the script.
    pub(crate) passed: Vec<String>,
}

impl Options {
    fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Option<Options>, String> {
        let mut options = Options::default();
        while let Some(flag) = arguments.next() {
            if flag == "--help" {
                return Ok(None);
            }
            let mut value = || arguments.next().ok_or(format!("{flag} needs a value"));
            match flag.as_str() {
                "--only" => options.only.push(value()?),
                "--json" => options.json = Some(value()?.into()),
                "--python" => options.python = Some(value()?.into()),
                "--script" => options.script = Some(value()?.into()),
                "--segment-anything" | "--sam2" | "--compile" => {
                    let value = value()?;
                    options.passed.extend([flag, value]);
                }
                _ => return Err(format!("unknown option {flag}\n\n{HELP}")),
            }
        }
        Ok(Some(options))
    }

    /// Whether a piece of work is wanted.
    pub(crate) fn wants(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|part| name.contains(part.as_str()))
    }
}

fn main() {
    let options = match Options::parse(std::env::args().skip(1)) {
        Ok(Some(options)) => options,
        Ok(None) => {
            println!("{HELP}");
            return;
        }
        Err(problem) => {
            println!("{problem}");
            std::process::exit(2);
        }
    };
    let profile = Profile { device: Device::Cuda(0), ..Profile::default() };
    let backends = device::backends(1);
    let Some(backend) = backends.get(1) else {
        println!("no GPU: {}", device::usable_gpu().err().unwrap_or_default());
        std::process::exit(1);
    };
    println!("{}", backend.name());
    let timer = Timer { backend: &**backend, profile: &profile };
    let mut rows = kernels::rows(&timer, &options);
    rows.extend(models::rows(&timer, &options));
    if options.python.is_some() {
        torch::add(&mut rows, &options);
    }
    print_table(&rows);
    if let Some(file) = &options.json {
        let document = json!({ "device": backend.name(), "rows": rows.iter().map(Row::json).collect::<Vec<Value>>() });
        std::fs::write(file, format!("{document:#}\n")).unwrap();
    }
}

fn print_table(rows: &[Row]) {
    println!(
        "| | alone, ms | back to back, ms | PyTorch eager, ms | compiled, ms | faster than the best |"
    );
    println!("|---|---|---|---|---|---|");
    let shown = |time: Option<f64>| time.map_or(String::new(), |time| format!("{time:.3}"));
    for row in rows {
        let best = [row.eager, row.compiled].into_iter().flatten().reduce(f64::min);
        let factor = best.map_or(String::new(), |best| format!("{:.2}×", best / row.alone));
        println!(
            "| {} | {:.3} | {} | {} | {} | {factor} |",
            row.name,
            row.alone,
            shown(row.together),
            shown(row.eager),
            shown(row.compiled),
        );
    }
}
