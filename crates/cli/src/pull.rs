//! Downloads of checkpoints, on request only. `cutout pull` is the one command that opens connections of its own; `serve`
//! fetches the pictures of a Label Studio that connected to it.
//!
//! ```text
//! name ──catalogue──▶ Wanted ──Place::existing──▶ there: nothing to do
//!                       │
//!                       └─ mirrors, then the origin: HEAD (commit, digest, size) ──▶ GET with a range into the part file
//!                                                        digest compared ──▶ renamed ──▶ linked
//! ```

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::environment::Environment;
use crate::progress::Progress;
use crate::{checkpoints, format, interrupt, stdio};

mod address;
mod catalogue;
mod client;
mod error;
mod place;
mod token;
mod transfer;

pub(crate) use catalogue::{PUBLISHED, Published};
pub(crate) use client::fetch;
pub(crate) use error::PullError;
pub(crate) use token::Token;

use address::Address;
use client::{Advice, Client, Facts};
use place::Place;
use transfer::Transfer;

/// Hugging Face's hub, unless `HF_ENDPOINT` names another.
const HUB: &str = "https://huggingface.co";
/// Meta's host.
const META: &str = "https://dl.fbaipublicfiles.com";

/// Where a file comes from.
#[derive(Clone, Debug)]
pub(crate) enum Origin {
    /// A repository, `owner/name`, of Hugging Face's hub.
    Hub { repository: String },
    /// A folder on Meta's host.
    Meta { folder: String },
}

/// A file to fetch.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    pub(crate) origin: Origin,
    /// Name of the file; in repositories, with its folders.
    pub(crate) file: String,
    /// Size, if it is known without asking.
    pub(crate) bytes: Option<u64>,
    /// SHA-256 in hexadecimal digits, if it is known without asking.
    pub(crate) sha256: Option<String>,
}

/// How to fetch.
#[derive(Debug)]
pub(crate) struct PullOptions {
    /// Whether only files on this machine are used and no connection is opened.
    pub(crate) offline: bool,
    /// Hosts that are asked before the origin.
    pub(crate) mirrors: Vec<String>,
    /// Attempts after the first one.
    pub(crate) retries: u32,
    /// Longest wait for a host.
    pub(crate) patience: Duration,
}

/// A host that may have the file.
struct Host {
    base: Address,
    token: Option<Token>,
}

impl Wanted {
    /// The file with a name of the catalogue, or `OWNER/NAME/FILE` of the hub.
    pub(crate) fn named(text: &str) -> Option<Wanted> {
        if let Some(published) = Published::named(text) {
            return Some(published.wanted());
        }
        let parts: Vec<&str> = text.split('/').collect();
        let (owner, name, file) = match parts.as_slice() {
            [owner, name, file @ ..] if !file.is_empty() => (owner, name, file.join("/")),
            _ => return None,
        };
        parts.iter().all(|part| is_plain_name(part)).then(|| Wanted {
            origin: Origin::Hub { repository: format!("{owner}/{name}") },
            file,
            bytes: None,
            sha256: None,
        })
    }

    /// The path below a host.
    fn path(&self) -> String {
        match &self.origin {
            Origin::Hub { repository } => format!("/{repository}/resolve/main/{}", self.file),
            Origin::Meta { folder } => format!("/{folder}/{}", self.file),
        }
    }

    /// The address at the origin.
    pub(crate) fn source(&self, environment: &Environment) -> String {
        let base = match self.origin {
            Origin::Hub { .. } => environment.hub_endpoint.as_deref().unwrap_or(HUB),
            Origin::Meta { .. } => META,
        };
        let address = Address::parse(base).and_then(|base| base.below(&self.path()));
        address.map_or_else(|error| error.to_string(), |address| address.shown())
    }

    /// The file on this machine: in the cache, or under its name and with its size in one of the usual folders.
    pub(crate) fn here(&self, environment: &Environment) -> Option<PathBuf> {
        let cached = Place::of(self, environment).and_then(|place| place.existing(self.bytes));
        cached.or_else(|| {
            let bytes = self.bytes?;
            let found = checkpoints::named(self.file.as_ref(), environment)?;
            std::fs::metadata(&found).is_ok_and(|file| file.len() == bytes).then_some(found)
        })
    }

    /// Fetches the file, unless it is here, and returns its path.
    pub(crate) fn pull(&self, options: &PullOptions, environment: &Environment) -> Result<PathBuf> {
        if let Some(path) = self.here(environment) {
            stdio::note(&format!("{} is here already", self.file));
            return Ok(path);
        }
        if options.offline {
            bail!(
                "{}: not on this machine, and --offline or HF_HUB_OFFLINE forbids connections",
                self.file
            );
        }
        let place = Place::of(self, environment)
            .context("no home folder; HF_HUB_CACHE and TORCH_HOME name folders for checkpoints")?;
        let hosts = self.hosts(options, environment)?;
        let last = hosts.len() - 1;
        for (index, host) in hosts.into_iter().enumerate() {
            let name = host.base.host();
            match self.fetch(host, &place, options) {
                Ok(path) => return Ok(path),
                Err(error) if index < last && !error.is_local() => {
                    stdio::note(&format!("mirror {name}: {error}; trying the next host"));
                }
                Err(error) => return Err(error.into()),
            }
        }
        bail!("{}: no host has it", self.file)
    }

    /// The mirrors, then the origin. Only the origin gets the token.
    fn hosts(&self, options: &PullOptions, environment: &Environment) -> Result<Vec<Host>> {
        let mirrors = options.mirrors.iter().chain(&environment.mirrors);
        let mut hosts = Vec::new();
        for mirror in mirrors {
            hosts.push(Host { base: Address::parse(mirror)?, token: None });
        }
        let (base, token) = match self.origin {
            Origin::Hub { .. } => {
                let endpoint = environment.hub_endpoint.as_deref().unwrap_or(HUB);
                (Address::parse(endpoint).context("HF_ENDPOINT")?, Token::find(environment))
            }
            Origin::Meta { .. } => (Address::parse(META)?, None),
        };
        hosts.push(Host { base, token });
        Ok(hosts)
    }

    /// Fetches the file from one host.
    fn fetch(
        &self,
        host: Host,
        place: &Place,
        options: &PullOptions,
    ) -> Result<PathBuf, PullError> {
        let file = host.base.below(&self.path())?;
        let advice = self.advice(&host);
        if host.token.is_some() && !host.base.is_private() {
            stdio::note(&format!("{}: not encrypted, so the token is not sent", host.base.host()));
        }
        let client = Client::new(host.base, host.token, options.patience, advice);
        let facts = facts(&client, &file, options.retries)?;
        let (bytes, sha256) = self.expected(&facts, &file)?;
        let commit = facts.commit.as_deref();
        let (part, _lock) = place.prepare(&sha256)?;
        if place.has_content(&sha256, bytes) {
            return place.link(&sha256, commit);
        }
        interrupt::say("interrupted: what arrived is kept, the same command goes on from there");
        stdio::note(&format!("{}: {} from {}", self.file, format::bytes(bytes), file.host()));
        let progress = Progress::bytes(bytes, self.file.as_str());
        let transfer = Transfer {
            client: &client,
            file: &file,
            bytes,
            sha256: &sha256,
            retries: options.retries,
            patience: options.patience,
        };
        transfer.run(&part, &progress)?;
        drop(progress);
        let path = place.keep(&part, &sha256, commit)?;
        stdio::note(&format!("{}: complete, SHA-256 as expected", self.file));
        Ok(path)
    }

    /// Size and digest: what is known must agree with what the host says.
    fn expected(&self, facts: &Facts, file: &Address) -> Result<(u64, String), PullError> {
        let url = || file.shown();
        let sha256 = match (&self.sha256, &facts.sha256) {
            (Some(known), Some(published)) if known != published => {
                let (expected, found) = (known.clone(), published.clone());
                return Err(PullError::OtherFile { url: url(), expected, found });
            }
            (Some(digest), _) | (None, Some(digest)) => digest.clone(),
            (None, None) => return Err(PullError::NoDigest { url: url() }),
        };
        let bytes = match (self.bytes, facts.bytes) {
            (Some(expected), Some(found)) if expected != found => {
                return Err(PullError::Length { url: url(), expected, found });
            }
            (Some(bytes), _) | (None, Some(bytes)) => bytes,
            (None, None) => return Err(PullError::NoLength { url: url() }),
        };
        Ok((bytes, sha256))
    }

    /// What to do about 401 and 403.
    fn advice(&self, host: &Host) -> Advice {
        let Origin::Hub { repository } = &self.origin else {
            let text =
                "It is public: a proxy or firewall may be in between; --mirror names another host.";
            return Advice { unauthorized: text.to_owned(), forbidden: text.to_owned() };
        };
        let base = host.base.shown();
        let base = base.trim_end_matches('/');
        let visit = format!("visit {base}/{repository} and accept the licence");
        let token = format!("a token of {base}/settings/tokens");
        let unauthorized = match host.token {
            Some(_) => {
                format!("It does not accept the token: set HF_TOKEN to {token}, and {visit}.")
            }
            None => format!("To get access, {visit}; then set HF_TOKEN to {token}."),
        };
        let forbidden = format!(
            "To get access, {visit} and wait until it is granted; the token in HF_TOKEN must be allowed to read gated repositories."
        );
        Advice { unauthorized, forbidden }
    }
}

/// What the host says about a file. A busy host is asked again.
fn facts(client: &Client, file: &Address, retries: u32) -> Result<Facts, PullError> {
    let mut failures = 0;
    loop {
        match client.facts(file) {
            Err(error @ PullError::Unavailable { .. }) if failures < retries => {
                transfer::pause(&error, failures);
                failures += 1;
            }
            answer => return answer,
        }
    }
}

/// Whether a text is a SHA-256 in lower-case hexadecimal digits.
fn is_sha256(text: &str) -> bool {
    text.len() == 64 && is_lower_hexadecimal(text)
}

/// Whether a text can be the commit of a repository, and so the name of a folder.
fn is_commit(text: &str) -> bool {
    (7..=64).contains(&text.len()) && is_lower_hexadecimal(text)
}

fn is_lower_hexadecimal(text: &str) -> bool {
    text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// Whether a text can be a folder or file in a repository, in an address and on every file system.
fn is_plain_name(text: &str) -> bool {
    let plain =
        |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '.' | '_' | '-' | '+');
    (1..=200).contains(&text.len()) && !text.starts_with('.') && text.chars().all(plain)
}

#[cfg(test)]
#[allow(dead_code, reason = "shared with the tests of the program, which use all of it")]
#[path = "../tests/support/server.rs"]
mod server;

#[cfg(test)]
mod tests {
    use std::fs;

    use super::server::{Reply, Server};
    use super::*;

    /// A host without the headers of the hub.
    fn plain_host(content: &[u8]) -> Server {
        let content = content.to_vec();
        Server::start(move |_| Reply::new(200).body(content.clone()))
    }

    fn options(mirrors: &[&Server]) -> PullOptions {
        let mirrors = mirrors.iter().map(|server| server.address.clone()).collect();
        PullOptions { offline: false, mirrors, retries: 0, patience: Duration::from_secs(5) }
    }

    fn wanted(origin: Origin, file: &str, content: &[u8]) -> Wanted {
        let digest = ring::digest::digest(&ring::digest::SHA256, content);
        let sha256 = digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        let bytes = Some(content.len() as u64);
        Wanted { origin, file: file.to_owned(), bytes, sha256: Some(sha256) }
    }

    #[test]
    fn known_files_come_from_any_host() {
        let content = b"weights".repeat(30_000);
        let mirror = plain_host(&content);
        let home = std::env::temp_dir().join(format!("cutout-pull-{}", std::process::id()));
        let mut environment = Environment { home: Some(home.clone()), ..Environment::default() };
        let hub = Origin::Hub { repository: "me/model".to_owned() };
        let meta = Origin::Meta { folder: "folder".to_owned() };
        for (origin, file, place) in [
            (&hub, "one.pt", ".cache/huggingface/hub"),
            (&meta, "two.pt", ".cache/torch/hub/checkpoints"),
        ] {
            let wanted = wanted(origin.clone(), file, &content);
            let path = wanted.pull(&options(&[&mirror]), &environment).unwrap();
            assert!(path.starts_with(home.join(place)), "{}", path.display());
            assert_eq!(fs::read(&path).unwrap(), content);
            assert_eq!(wanted.here(&environment), Some(path));
        }
        let files = |folder: &str| fs::read_dir(home.join(folder)).unwrap().count();
        assert_eq!(files(".cache/torch/hub/checkpoints"), 1, "no part and no lock is left");
        // Content that does not have the known digest is refused, wherever it comes from.
        let mut other = content.clone();
        other[9] ^= 1;
        let false_host = plain_host(&other);
        environment.hub_endpoint = Some(false_host.address.clone());
        environment.home = Some(home.join("other"));
        let error = wanted(hub, "one.pt", &content)
            .pull(&options(&[&false_host]), &environment)
            .unwrap_err();
        assert!(error.to_string().contains("damaged or replaced"), "{error}");
        fs::remove_dir_all(&home).unwrap();
    }

    #[test]
    fn names_of_repositories_are_checked() {
        let wanted = Wanted::named("me/my-model/weights/model.safetensors").unwrap();
        assert_eq!(wanted.path(), "/me/my-model/resolve/main/weights/model.safetensors");
        for text in
            ["", "sam9", "me/model", "me/model/", "me/../etc/passwd", "a/b/..", "a/b/c d", "/a/b/c"]
        {
            assert!(Wanted::named(text).is_none(), "{text}");
        }
    }

    #[test]
    fn what_a_host_says_must_agree_with_what_is_known() {
        let file = Address::parse("https://hub.test/f").unwrap();
        let [one, two] = ["1", "2"].map(|digit| digit.repeat(64));
        let facts =
            |sha256: Option<&String>, bytes| Facts { commit: None, sha256: sha256.cloned(), bytes };
        let known =
            Wanted { bytes: Some(5), sha256: Some(one.clone()), ..Wanted::named("a/b/c").unwrap() };
        let open = Wanted::named("a/b/c").unwrap();
        let expected = |wanted: &Wanted, facts| wanted.expected(&facts, &file);
        assert_eq!(expected(&known, facts(None, None)).unwrap(), (5, one.clone()));
        assert_eq!(expected(&open, facts(Some(&two), Some(7))).unwrap(), (7, two.clone()));
        let other = expected(&known, facts(Some(&two), Some(5)));
        assert!(matches!(other, Err(PullError::OtherFile { .. })));
        assert!(matches!(
            expected(&known, facts(Some(&one), Some(6))),
            Err(PullError::Length { .. })
        ));
        assert!(matches!(expected(&open, facts(None, Some(6))), Err(PullError::NoDigest { .. })));
        assert!(matches!(
            expected(&open, facts(Some(&one), None)),
            Err(PullError::NoLength { .. })
        ));
    }
}
