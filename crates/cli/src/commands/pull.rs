//! `cutout pull`: fetches published checkpoints.

use std::time::Duration;

use anyhow::Result;
use clap::Args;
use serde::Serialize;

use crate::environment::Environment;
use crate::failure::Usage;
use crate::pull::{PUBLISHED, Published, PullOptions, Wanted};
use crate::{format, stdio};

/// Fetch published checkpoints of SAM 1, 2, 2.1, 3 and 3.1
#[derive(Args)]
#[command(after_help = "Examples:
  cutout pull --list
      names, sizes, licences and sources
  cutout pull sam2.1-tiny
  cutout segment truck.jpg --model sam2.1-tiny --point 520,380
      after the pull, the name is enough
  HF_TOKEN=hf_... cutout pull sam3
      a gated model: accept its licence on its page and create a token first
  cutout pull facebook/sam2.1-hiera-tiny/model.safetensors
      any file of a repository on Hugging Face's hub
  cutout pull sam-vit-b --mirror https://models.example.org
      asks https://models.example.org/segment_anything/sam_vit_b_01ec64.pth first

Files go to the caches that Hugging Face's tools and PyTorch use, and are found by both sides. The
SHA-256 of every file is checked. An interrupted pull goes on where it stopped. No other command
opens a connection.

Environment: HF_HOME, HF_HUB_CACHE, TORCH_HOME, HF_TOKEN, HF_TOKEN_PATH, HF_ENDPOINT,
HF_HUB_OFFLINE as for Hugging Face's tools; CUTOUT_MIRRORS, separated by commas; HTTPS_PROXY.")]
pub(crate) struct Pull {
    /// Names that --list shows, or OWNER/NAME/FILE of Hugging Face's hub
    #[arg(value_name = "NAME", required_unless_present = "list")]
    names: Vec<String>,
    /// List the published checkpoints
    #[arg(long, conflicts_with = "names")]
    list: bool,
    /// With --list, print a JSON array
    #[arg(long, requires = "list")]
    json: bool,
    /// Open no connection: print the paths of files that are here, and fail for others
    #[arg(long)]
    offline: bool,
    /// Ask this host first, at the same paths; it gets no token. Repeat for more hosts
    #[arg(long, value_name = "URL")]
    mirror: Vec<String>,
    /// How often a broken download is continued without progress
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(..=100))]
    retries: u32,
    /// Longest wait for a host that sends nothing
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=3600))]
    timeout: u64,
}

impl Pull {
    pub(crate) fn run(self) -> Result<()> {
        let environment = Environment::read();
        if self.list {
            let records: Vec<Record> =
                PUBLISHED.iter().map(|entry| Record::of(entry, &environment)).collect();
            return if self.json {
                stdio::print_json(&records)
            } else {
                stdio::print(&text(&records))
            };
        }
        let wanted = self.names.iter().map(|name| wanted(name)).collect::<Result<Vec<Wanted>>>()?;
        let options = PullOptions {
            offline: self.offline || environment.offline,
            mirrors: self.mirror,
            retries: self.retries,
            patience: Duration::from_secs(self.timeout),
        };
        for file in wanted {
            let path = file.pull(&options, &environment)?;
            stdio::print(&path.display().to_string())?;
        }
        Ok(())
    }
}

/// The file with a name.
fn wanted(name: &str) -> Result<Wanted> {
    Wanted::named(name).ok_or_else(|| {
        let names: Vec<&str> = PUBLISHED.iter().map(|entry| entry.name).collect();
        Usage::error(format!(
            "{name:?}: not the name of a checkpoint ({}), nor OWNER/NAME/FILE",
            names.join(", ")
        ))
    })
}

/// A published checkpoint as JSON.
#[derive(Serialize)]
struct Record {
    name: &'static str,
    model: &'static str,
    bytes: u64,
    licence: &'static str,
    /// Whether an account and the acceptance of the licence are needed.
    gated: bool,
    source: String,
    sha256: &'static str,
    /// Where it is on this machine.
    path: Option<String>,
}

impl Record {
    fn of(entry: &'static Published, environment: &Environment) -> Self {
        let wanted = entry.wanted();
        let path = wanted.here(environment).map(|path| path.display().to_string());
        Record {
            name: entry.name,
            model: entry.model,
            bytes: entry.bytes,
            licence: entry.licence(),
            gated: entry.is_gated(),
            source: wanted.source(environment),
            sha256: entry.sha256,
            path,
        }
    }
}

fn text(records: &[Record]) -> String {
    let mut rows =
        vec![["NAME", "SIZE", "LICENCE", "GATED", "HERE", "SOURCE"].map(str::to_owned).to_vec()];
    let yes = |so: bool| if so { "yes" } else { "no" }.to_owned();
    rows.extend(records.iter().map(|record| {
        let source = record.source.replace("/resolve/main/", "/");
        vec![
            record.name.to_owned(),
            format::bytes(record.bytes),
            record.licence.to_owned(),
            yes(record.gated),
            yes(record.path.is_some()),
            source.trim_start_matches("https://").to_owned(),
        ]
    }));
    format::table(&rows)
}
