//! HTTP requests: redirects, the token, and the meaning of status codes.

use std::io::Read;
use std::time::Duration;

use ureq::http::{HeaderMap, Method, Request, Response};
use ureq::tls::{Certificate, RootCerts, TlsConfig};
use ureq::{Agent, Body};

use super::address::Address;
use super::{PullError, Token};

/// Most redirects followed by one request.
const MOST_REDIRECTS: usize = 8;
/// Longest pause that a host can ask for.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// A client for one host and the hosts it redirects to.
pub(super) struct Client {
    agent: Agent,
    /// The token is sent to addresses of this origin only.
    home: Address,
    token: Option<Token>,
    /// Advice for 401 and 403.
    advice: Advice,
}

/// What a user can do about 401 and 403.
pub(super) struct Advice {
    pub(super) unauthorized: String,
    pub(super) forbidden: String,
}

/// What the host says about a file.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Facts {
    /// The commit of the repository.
    pub(super) commit: Option<String>,
    /// The published SHA-256.
    pub(super) sha256: Option<String>,
    pub(super) bytes: Option<u64>,
}

/// The body of an answer, and where in the file it starts.
pub(super) struct Content {
    pub(super) start: u64,
    pub(super) body: Box<dyn Read>,
    /// The announced number of bytes of the body.
    pub(super) announced: Option<u64>,
    /// The host that sends it, after redirects.
    pub(super) host: String,
}

impl Client {
    /// A client for the host of `home`. `patience` limits each wait for the host.
    pub(super) fn new(
        home: Address,
        token: Option<Token>,
        patience: Duration,
        advice: Advice,
    ) -> Self {
        Client { agent: agent(patience), home, token, advice }
    }

    /// Asks for commit, digest and size of a file.
    pub(super) fn facts(&self, file: &Address) -> Result<Facts, PullError> {
        let mut facts = Facts::default();
        let enough = |response: &Response<Body>, at: &Address| {
            // Only the host itself is asked, not the ones it redirects to.
            if at.is_same_origin(&self.home) {
                facts.add(response.headers());
            }
            facts.is_complete()
        };
        let (response, at) = self.follow(&Method::HEAD, file, None, enough)?;
        if response.status().is_redirection() {
            return Ok(facts);
        }
        self.check(&response, &at, None)?;
        facts.bytes = facts.bytes.or_else(|| number(response.headers(), "content-length"));
        Ok(facts)
    }

    /// Asks for the bytes of a file from `start` on. The host may send the whole file instead.
    pub(super) fn content(&self, file: &Address, start: u64) -> Result<Content, PullError> {
        let range = (start > 0).then_some(start);
        let (response, at) = self.follow(&Method::GET, file, range, |_, _| false)?;
        self.check(&response, &at, range)?;
        let partial = response.status().as_u16() == 206;
        let start = if partial { range_start(response.headers()) } else { Some(0) };
        let status = || PullError::Status { url: at.shown(), status: response.status().as_u16() };
        let start = start.ok_or_else(status)?;
        let announced = number(response.headers(), "content-length");
        let body = Box::new(response.into_body().into_reader());
        Ok(Content { start, body, announced, host: at.host() })
    }

    /// Sends a request and follows redirects, until `enough` says that the answer at hand will do.
    fn follow(
        &self,
        method: &Method,
        first: &Address,
        range: Option<u64>,
        mut enough: impl FnMut(&Response<Body>, &Address) -> bool,
    ) -> Result<(Response<Body>, Address), PullError> {
        let mut at = first.clone();
        for _ in 0..=MOST_REDIRECTS {
            let response = self.send(method, &at, range)?;
            let redirects = matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308);
            if enough(&response, &at) || !redirects {
                return Ok((response, at));
            }
            let location = response.headers().get("location").and_then(|value| value.to_str().ok());
            let missing = PullError::Redirect { host: at.host(), reason: "it is not given" };
            at = at.redirected(location.ok_or(missing)?)?;
        }
        Err(PullError::Redirects { host: first.host(), limit: MOST_REDIRECTS })
    }

    /// Sends one request. The token goes to the home origin only.
    fn send(
        &self,
        method: &Method,
        at: &Address,
        range: Option<u64>,
    ) -> Result<Response<Body>, PullError> {
        let fail = |reason: String| PullError::Connection { host: at.host(), reason };
        let mut request = Request::builder().method(method).uri(at.uri());
        if let Some(start) = range {
            request = request.header("range", format!("bytes={start}-"));
        }
        let token = self.token.as_ref().filter(|_| self.may_have_token(at));
        if let Some(header) = token.and_then(Token::header) {
            request = request.header("authorization", header);
        }
        let request = request.body(()).map_err(|error| fail(error.to_string()))?;
        self.agent.run(request).map_err(|error| fail(reason(&error)))
    }

    fn may_have_token(&self, at: &Address) -> bool {
        at.is_same_origin(&self.home) && at.is_private()
    }

    /// The error of a status code.
    fn check(
        &self,
        response: &Response<Body>,
        at: &Address,
        range: Option<u64>,
    ) -> Result<(), PullError> {
        let (url, host) = (at.shown(), at.host());
        // 206 without a range would be half a file.
        let status = response.status().as_u16();
        match status {
            200 => Ok(()),
            206 if range.is_some() => Ok(()),
            401 => Err(PullError::Unauthorized { host, advice: self.advice.unauthorized.clone() }),
            403 => Err(PullError::Forbidden { host, advice: self.advice.forbidden.clone() }),
            404 | 410 => Err(PullError::NotFound { url }),
            416 => Err(PullError::Range { url, start: range.unwrap_or(0) }),
            408 | 429 | 500..=599 => {
                let pause = number(response.headers(), "retry-after").map(Duration::from_secs);
                let retry_after = pause.map(|pause| pause.min(LONGEST_PAUSE));
                Err(PullError::Unavailable { host, status, retry_after })
            }
            _ => Err(PullError::Status { url, status }),
        }
    }
}

/// An agent that follows no redirects; `patience` limits each wait.
fn agent(patience: Duration) -> Agent {
    // An error means that a provider is installed already, which is all that is needed.
    let _installed = rustls::crypto::ring::default_provider().install_default();
    let tls = TlsConfig::builder().root_certs(roots()).build();
    let wait = Some(patience);
    let config = Agent::config_builder()
        .tls_config(tls)
        .http_status_as_error(false)
        .max_redirects(0)
        .max_redirects_will_error(false)
        .user_agent(concat!("cutout/", env!("CARGO_PKG_VERSION")))
        .accept_encoding("identity")
        .timeout_resolve(wait)
        .timeout_connect(wait)
        .timeout_send_request(wait)
        .timeout_recv_response(wait)
        .timeout_per_read(wait)
        .timeout_per_write(wait)
        .build();
    Agent::new_with_config(config)
}

/// The bytes at an address, with an `Authorization`: at most `most`, without redirects.
pub(crate) fn fetch(url: &str, authorization: &str, most: usize) -> Result<Vec<u8>, String> {
    const PATIENCE: Duration = Duration::from_secs(20);
    let request = Request::builder().uri(url).header("authorization", authorization).body(());
    let request = request.map_err(|error| error.to_string())?;
    let response = agent(PATIENCE).run(request).map_err(|error| reason(&error))?;
    let status = response.status().as_u16();
    if status != 200 {
        return Err(format!("status {status}"));
    }
    let mut bytes = Vec::new();
    let body = response.into_body().into_reader();
    body.take(most as u64 + 1).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
    if bytes.len() > most { Err(format!("more than {most} bytes")) } else { Ok(bytes) }
}

impl Facts {
    /// Adds what the headers of an answer say. Earlier answers come first.
    fn add(&mut self, headers: &HeaderMap) {
        let text = |name: &str| {
            let value = headers.get(name).and_then(|value| value.to_str().ok())?;
            Some(value.trim_start_matches("W/").trim_matches('"').to_ascii_lowercase())
        };
        let commit = text("x-repo-commit").filter(|commit| super::is_commit(commit));
        let sha256 = text("x-linked-etag").or_else(|| text("etag"));
        self.commit = self.commit.take().or(commit);
        self.sha256 = self.sha256.take().or(sha256.filter(|digest| super::is_sha256(digest)));
        self.bytes = self.bytes.or_else(|| number(headers, "x-linked-size"));
    }

    fn is_complete(&self) -> bool {
        self.commit.is_some() && self.sha256.is_some() && self.bytes.is_some()
    }
}

/// The certificates that this system trusts, which may be those of a company. Without any, no encrypted connection is made.
fn roots() -> RootCerts {
    let found = rustls_native_certs::load_native_certs().certs;
    RootCerts::from(found.iter().map(|certificate| Certificate::from_der(certificate).to_owned()))
}

/// A header that is a plain number.
fn number(headers: &HeaderMap, name: &str) -> Option<u64> {
    headers.get(name)?.to_str().ok()?.trim().parse().ok()
}

/// First byte of `content-range: bytes 100-199/200`.
fn range_start(headers: &HeaderMap) -> Option<u64> {
    let value = headers.get("content-range")?.to_str().ok()?;
    value.trim().strip_prefix("bytes ")?.split_once('-')?.0.trim().parse().ok()
}

/// The text of a failed connection, for people.
fn reason(error: &ureq::Error) -> String {
    let text = plain_reason(error);
    let certificates = text.contains("certificate");
    let hint = "; SSL_CERT_FILE names a file with the certificates to trust";
    text + if certificates { hint } else { "" }
}

#[expect(clippy::wildcard_enum_match_arm, reason = "the other errors speak for themselves")]
fn plain_reason(error: &ureq::Error) -> String {
    match error {
        ureq::Error::HostNotFound => "no such host, or no network".to_owned(),
        ureq::Error::Timeout(_) => "no answer in time (see --timeout)".to_owned(),
        ureq::Error::Io(error) => error.to_string(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let parsed =
            pairs.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
        parsed.collect()
    }

    #[test]
    fn facts_come_from_the_hubs_headers() {
        let digest = "ab".repeat(32);
        let mut facts = Facts::default();
        facts.add(&headers(&[("etag", "\"0123456789012345678901234567890123456789\"")]));
        assert_eq!(facts, Facts::default(), "a git hash is not a SHA-256");
        let quoted: &'static str = format!("\"{digest}\"").leak();
        facts.add(&headers(&[("x-linked-etag", quoted), ("x-repo-commit", "../../etc")]));
        facts.add(&headers(&[("x-linked-size", "12"), ("x-repo-commit", "0123456789abcdef")]));
        assert_eq!(facts.sha256, Some(digest));
        assert_eq!((facts.bytes, facts.commit.as_deref()), (Some(12), Some("0123456789abcdef")));
        assert!(facts.is_complete());
    }

    #[test]
    fn ranges_are_read() {
        let start = |text: &'static str| range_start(&headers(&[("content-range", text)]));
        assert_eq!(start("bytes 100-199/200"), Some(100));
        assert_eq!(start("bytes */200"), None);
        assert_eq!(start("items 1-2/3"), None);
    }
}
