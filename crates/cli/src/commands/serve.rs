//! `cutout serve`: a page to click on, and an API over HTTP.

use std::collections::HashSet;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Result;
use clap::Args;
use cutout_sam::{Profile, inspect};
use cutout_server::{Limits, ModelSource as Served, Options, Server};

use crate::checkpoints::Catalogue;
use crate::environment::Environment;
use crate::failure::{Usage, message};
use crate::options::{ModelSource, RunOptions};
use crate::pull::fetch;
use crate::{interrupt, stdio};

/// Serve a page to click on, and an API, over HTTP
#[derive(Args)]
#[command(after_help = "Examples:
  cutout serve
      open http://127.0.0.1:9090 and drop a picture on it; runs the built-in model and offers
      the checkpoints that `cutout models` lists
  cutout serve --model sam2.1_hiera_tiny.pt --model sam3.pt --port 8000
      two models; the first answers requests that name none
  cutout serve --host 0.0.0.0 --token SECRET
      for other machines, which send the token with every request
  curl --data-binary @truck.jpg http://127.0.0.1:9090/api/v1/images
      docs/serve.md has the API; /api/v1/openapi.json describes it")]
pub(crate) struct Serve {
    /// Checkpoint, or `built-in`; repeat for more. Without it, the built-in model and the checkpoints that `cutout models`
    /// lists, loaded when they are first used
    #[arg(long, short, value_name = "CHECKPOINT")]
    model: Vec<PathBuf>,
    /// Address to listen on. Any but this machine's own needs --token or --insecure
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    host: IpAddr,
    /// Port to listen on; 0 takes a free one
    #[arg(long, value_name = "PORT", default_value_t = 9090)]
    port: u16,
    /// Token that requests must carry
    #[arg(long, value_name = "TOKEN", value_parser = parse_token)]
    token: Option<String>,
    /// Listen on an address that others reach, without a token
    #[arg(long, conflicts_with = "token")]
    insecure: bool,
    /// Let pages of this origin, such as https://example.org, use the API; repeat for more
    #[arg(long, value_name = "ORIGIN", value_parser = parse_origin)]
    allow_origin: Vec<String>,
    /// Keep this many megabytes of pictures and their features in memory
    #[arg(long, value_name = "MB", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..))]
    cache: u32,
    /// Phrase that CVAT's detectors look for with a SAM 3, as a label of theirs; repeat for more
    #[arg(long, value_name = "PHRASE")]
    label: Vec<String>,
    #[command(flatten)]
    run: RunOptions,
}

/// Shortest token that is accepted.
const TOKEN_LENGTH: usize = 8;

fn parse_token(text: &str) -> Result<String, String> {
    let is_printable = text.bytes().all(|byte| byte.is_ascii_graphic());
    if text.len() < TOKEN_LENGTH || !is_printable {
        return Err(format!("a token has at least {TOKEN_LENGTH} letters, digits or signs"));
    }
    Ok(text.to_owned())
}

fn parse_origin(text: &str) -> Result<String, String> {
    match text.split_once("://") {
        Some(("http" | "https", host)) if !host.is_empty() && !host.contains('/') => {
            Ok(text.to_owned())
        }
        Some(_) | None => Err("an origin is scheme, host and port: https://example.org".to_owned()),
    }
}

impl Serve {
    pub(crate) fn run(self) -> Result<()> {
        let is_open = !self.host.is_loopback() && self.token.is_none();
        if is_open && !self.insecure {
            return Err(Usage::error(format!(
                "others can reach {}: give --token TOKEN, or --insecure to let everybody in",
                self.host
            )));
        }
        let mut models = self.models()?;
        if let Some(first) = models.first_mut() {
            // What is wrong with it is seen now, and its first answer is fast.
            first.opened = Some((first.open)().map_err(anyhow::Error::msg)?);
        }
        let cache = self.cache as usize;
        let mut options = Options::new(SocketAddr::new(self.host, self.port), models);
        options.limits =
            Limits { library_bytes: cache.saturating_mul(1 << 20), ..Limits::default() };
        options.token.clone_from(&self.token);
        options.allowed_origins.clone_from(&self.allow_origin);
        options.fetch = Some(Arc::new(fetch));
        options.tools = Environment::read().video_tools();
        options.labels.clone_from(&self.label);
        let server = Server::bind(options)?;
        if is_open {
            stdio::warn("everybody who reaches this machine can use the server: there is no token");
        }
        interrupt::finish_gracefully();
        interrupt::say("stopped at once: running requests were not finished");
        let fragment = self.token.as_ref().map_or(String::new(), |token| format!("#token={token}"));
        stdio::print(&format!("http://{}/{fragment}", server.address()))?;
        stdio::note("Ctrl-C stops the server");
        Ok(server.run(interrupt::requested)?)
    }

    /// The models in the order of the flags; without flags, the built-in one and those on this machine.
    fn models(&self) -> Result<Vec<Served>> {
        let mut names = HashSet::new();
        if !self.model.is_empty() {
            let named = |given: &PathBuf| {
                let source = ModelSource::named(given)?;
                let profile = self.run.profile(source.file())?;
                served(source, profile, &mut names)
            };
            return self.model.iter().map(named).collect();
        }
        let mut models = vec![served(ModelSource::BuiltIn, self.run.profile(None)?, &mut names)?];
        let runs = |found: &crate::checkpoints::Found| {
            found.content.as_ref().is_ok_and(|content| content.problem.is_none())
        };
        for found in Catalogue::usual(&Environment::read()).found.into_iter().filter(runs) {
            let profile = self.run.profile(Some(&found.path))?;
            models.push(served(ModelSource::File(found.path), profile, &mut names)?);
        }
        Ok(models)
    }
}

/// A model as the server offers it. It is opened on first use.
fn served(source: ModelSource, profile: Profile, names: &mut HashSet<String>) -> Result<Served> {
    let Some(path) = source.file() else {
        names.insert("built-in".to_owned());
        return Ok(Served::built_in(move || open(&source, &profile)));
    };
    let inspection = inspect(&source.checkpoint()?)?;
    if let Some(problem) = inspection.problem() {
        anyhow::bail!("{problem}");
    }
    let config = inspection.inside.map(|inside| inside.config)?;
    Ok(Served {
        id: id_of(path, names),
        title: inspection.identity.to_string(),
        finds: config.finder.is_some(),
        answers_clicks: config.decoder.is_some(),
        tracks: config.memory.is_some(),
        open: Box::new(move || open(&source, &profile)),
        opened: None,
    })
}

fn open(source: &ModelSource, profile: &Profile) -> Result<cutout_sam::Sam, String> {
    let opened = source.open(profile.clone()).and_then(|sam| {
        sam.prepare()?;
        Ok(sam)
    });
    opened.map_err(|error| message(&error))
}

/// Name of a model in requests: the name of its file, with a number if another has it already.
fn id_of(path: &Path, names: &mut HashSet<String>) -> String {
    let name = path.file_stem().unwrap_or_default().to_string_lossy();
    let is_kept = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    let name: String = name.chars().map(|c| if is_kept(c) { c } else { '-' }).collect();
    let mut id = name.clone();
    let mut number = 2;
    while !names.insert(id.clone()) {
        id = format!("{name}-{number}");
        number += 1;
    }
    id
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_models_are_distinct_and_safe() {
        let mut names = HashSet::new();
        let mut id = |path: &str| id_of(Path::new(path), &mut names);
        assert_eq!(id("a/sam2.1 tiny.pt"), "sam2.1-tiny");
        assert_eq!(id("b/sam2.1 tiny.safetensors"), "sam2.1-tiny-2");
    }

    #[test]
    fn tokens_and_origins_are_checked() {
        assert!(parse_token("12345678").is_ok());
        assert!(parse_token("short").is_err() && parse_token("with a space").is_err());
        assert!(parse_origin("https://example.org:8080").is_ok());
        for wrong in ["example.org", "ftp://x", "https://x/", "*", "https://"] {
            assert!(parse_origin(wrong).is_err(), "{wrong}");
        }
    }
}
