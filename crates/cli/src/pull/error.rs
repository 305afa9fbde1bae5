//! Failures of a download.

use std::path::PathBuf;
use std::time::Duration;

use crate::format;

/// Why a file was not fetched. Texts name hosts and paths, never a token.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PullError {
    /// 401: the host wants an account.
    #[error("{host} asks for an account (401). {advice}")]
    Unauthorized { host: String, advice: String },
    /// 403: the account has no access.
    #[error("{host} refuses access (403). {advice}")]
    Forbidden { host: String, advice: String },
    #[error("{url}: no such file (404)")]
    NotFound { url: String },
    /// 429, 408 and 5xx: worth another attempt.
    #[error("{host} cannot answer now ({status}); try again later")]
    Unavailable { host: String, status: u16, retry_after: Option<Duration> },
    #[error("{url}: unexpected answer {status}")]
    Status { url: String, status: u16 },
    /// 416: the host has fewer bytes than the part file.
    #[error("{url}: the host has no bytes from {start} on (416)")]
    Range { url: String, start: u64 },
    /// The connection could not be made, or broke.
    #[error("{host}: {reason}")]
    Connection { host: String, reason: String },
    #[error("{host} sent less than {} in {seconds} s", format::bytes(*least))]
    Stalled { host: String, least: u64, seconds: u64 },
    #[error("{host}: more than {limit} redirects")]
    Redirects { host: String, limit: usize },
    #[error("{host} redirects to an address that is not followed: {reason}")]
    Redirect { host: String, reason: &'static str },
    #[error("{text}: not the address of a host (http:// or https:// and a name)")]
    Address { text: String },
    #[error("{url}: the host says {found} bytes, {expected} were expected")]
    Length { url: String, expected: u64, found: u64 },
    #[error("{url}: the host does not say how long the file is")]
    NoLength { url: String },
    #[error("{url}: the host publishes no SHA-256 for this file")]
    NoDigest { url: String },
    #[error(
        "{url}: the host publishes another file (SHA-256 {found}) than the one this version knows ({expected})"
    )]
    OtherFile { url: String, expected: String, found: String },
    #[error("{url}: the content is damaged or replaced: SHA-256 {found}, expected {expected}")]
    Digest { url: String, expected: String, found: String },
    #[error(
        "{}: {} are needed, {} are free", folder.display(), format::bytes(*needed), format::bytes(*free)
    )]
    NoSpace { folder: PathBuf, needed: u64, free: u64 },
    #[error("{}: another program is fetching this file", path.display())]
    Locked { path: PathBuf },
    #[error("{}: {source}", path.display())]
    File { path: PathBuf, source: std::io::Error },
}

impl PullError {
    /// Whether another attempt at the same host may succeed.
    pub(super) fn is_transient(&self) -> bool {
        matches!(
            self,
            PullError::Unavailable { .. }
                | PullError::Connection { .. }
                | PullError::Stalled { .. }
        )
    }

    /// Whether the cause is on this machine: another host would not help.
    pub(super) fn is_local(&self) -> bool {
        matches!(
            self,
            PullError::NoSpace { .. } | PullError::Locked { .. } | PullError::File { .. }
        )
    }

    /// The pause that the host asks for.
    pub(super) fn retry_after(&self) -> Option<Duration> {
        if let PullError::Unavailable { retry_after, .. } = self { *retry_after } else { None }
    }
}
