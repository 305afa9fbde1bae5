//! A download into a part file: resumed, bounded and checked.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use ring::digest::{Context, SHA256};

use super::PullError;
use super::address::Address;
use super::client::{Client, Content};
use crate::progress::Progress;
use crate::stdio;

/// Bytes read at a time.
const BLOCK: usize = 1 << 16;
/// Fewest bytes that must arrive within each span of the patience.
const FEWEST: u64 = 1024;
/// Bytes after which a broken connection does not count as a failed attempt.
const WORTH: u64 = 1 << 20;
/// First and longest pause between two attempts.
const PAUSES: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(30)];

/// A file on a host.
pub(super) struct Transfer<'a> {
    pub(super) client: &'a Client,
    pub(super) file: &'a Address,
    pub(super) bytes: u64,
    /// SHA-256 in hexadecimal digits.
    pub(super) sha256: &'a str,
    /// Attempts after the first one.
    pub(super) retries: u32,
    pub(super) patience: Duration,
}

/// The part file and the digest of what it holds.
struct Part<'a> {
    path: &'a Path,
    file: File,
    digest: Context,
    length: u64,
}

impl Transfer<'_> {
    /// Fills the part file at `path`, going on from what it holds. On success it holds the whole file with the expected
    /// digest. If the connection breaks, what arrived is kept.
    pub(super) fn run(&self, path: &Path, progress: &Progress) -> Result<(), PullError> {
        let mut part = Part::open(path, self.bytes)?;
        let folder = path.parent().unwrap_or(Path::new("."));
        let needed = self.bytes - part.length;
        if let Ok(free) = fs4::available_space(folder)
            && free < needed
        {
            return Err(PullError::NoSpace { folder: folder.to_owned(), needed, free });
        }
        if part.length > 0 && part.length < self.bytes {
            let [done, all] = [part.length, self.bytes].map(crate::format::bytes);
            stdio::note(&format!("going on after {done} of {all}"));
        }
        let mut failures = 0;
        while part.length < self.bytes {
            let before = part.length;
            match self.attempt(&mut part, progress) {
                Ok(()) => {}
                Err(PullError::Range { .. }) if before > 0 => part.clear()?,
                // The host does not end the connection after the last byte.
                Err(error) if error.is_transient() && part.length == self.bytes => {}
                Err(error) if error.is_transient() => {
                    if part.length >= before + WORTH {
                        failures = 0;
                    }
                    if failures >= self.retries {
                        note_kept(&part);
                        return Err(error);
                    }
                    pause(&error, failures);
                    failures += 1;
                }
                Err(error) => return Err(error),
            }
        }
        self.check(part)
    }

    /// One request: appends what arrives. `Ok` if the file is complete.
    fn attempt(&self, part: &mut Part<'_>, progress: &Progress) -> Result<(), PullError> {
        let content = self.client.content(self.file, part.length)?;
        if content.start != part.length {
            if content.start != 0 {
                return Err(PullError::Range { url: self.file.shown(), start: part.length });
            }
            stdio::note(&format!("{} cannot resume: starting again", content.host));
            part.clear()?;
        }
        let missing = self.bytes - part.length;
        if let Some(found) = content.announced.filter(|announced| *announced != missing) {
            let expected = missing;
            return Err(PullError::Length { url: self.file.shown(), expected, found });
        }
        self.receive(content, part, progress)
    }

    /// Copies the body to the part file: never more than is missing, never slower than [`FEWEST`] bytes per patience.
    fn receive(
        &self,
        mut content: Content,
        part: &mut Part<'_>,
        progress: &Progress,
    ) -> Result<(), PullError> {
        let mut block = vec![0; BLOCK];
        let (mut span, mut received) = (Instant::now(), 0);
        let host = content.host.clone();
        loop {
            let count = match content.body.read(&mut block) {
                Ok(count) => count,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => {
                    return Err(PullError::Connection { host, reason: broken(&error) });
                }
            };
            let missing = self.bytes - part.length;
            if count == 0 && missing > 0 {
                let reason = format!("the connection ended {missing} bytes early");
                return Err(PullError::Connection { host, reason });
            }
            if count as u64 > missing {
                let found = part.length + count as u64;
                let expected = self.bytes;
                return Err(PullError::Length { url: self.file.shown(), expected, found });
            }
            if count == 0 {
                return Ok(());
            }
            part.append(&block[..count])?;
            progress.set(part.length);
            received += count as u64;
            if span.elapsed() >= self.patience {
                if received < FEWEST {
                    let seconds = self.patience.as_secs();
                    return Err(PullError::Stalled { host, least: FEWEST, seconds });
                }
                (span, received) = (Instant::now(), 0);
            }
        }
    }

    /// Compares the digest. A wrong file is removed: nothing in it can be trusted.
    fn check(&self, part: Part<'_>) -> Result<(), PullError> {
        let Part { path, file, digest, .. } = part;
        let fail = |source| PullError::File { path: path.to_owned(), source };
        let found = hexadecimal(digest.finish().as_ref());
        if found != self.sha256 {
            drop(file);
            std::fs::remove_file(path).map_err(fail)?;
            let expected = self.sha256.to_owned();
            return Err(PullError::Digest { url: self.file.shown(), expected, found });
        }
        file.sync_all().map_err(fail)
    }
}

impl<'a> Part<'a> {
    /// Opens or creates the part file and computes the digest of what it holds. A file longer than `bytes` is emptied.
    fn open(path: &'a Path, bytes: u64) -> Result<Self, PullError> {
        let fail = |source| PullError::File { path: path.to_owned(), source };
        let mut options = OpenOptions::new();
        let mut file =
            options.read(true).write(true).create(true).truncate(false).open(path).map_err(fail)?;
        let length = file.metadata().map_err(fail)?.len();
        let mut part_digest = Context::new(&SHA256);
        if length > bytes {
            let mut part = Part { path, file, digest: part_digest, length };
            part.clear()?;
            return Ok(part);
        }
        let mut block = vec![0; BLOCK];
        let mut left = length;
        while left > 0 {
            let most = left.min(BLOCK as u64) as usize;
            file.read_exact(&mut block[..most]).map_err(fail)?;
            part_digest.update(&block[..most]);
            left -= most as u64;
        }
        Ok(Part { path, file, digest: part_digest, length })
    }

    fn append(&mut self, bytes: &[u8]) -> Result<(), PullError> {
        self.file.write_all(bytes).map_err(|source| self.fail(source))?;
        self.digest.update(bytes);
        self.length += bytes.len() as u64;
        Ok(())
    }

    /// Empties the file.
    fn clear(&mut self) -> Result<(), PullError> {
        let emptied = self.file.set_len(0).and_then(|()| self.file.seek(SeekFrom::Start(0)));
        emptied.map_err(|source| self.fail(source))?;
        self.digest = Context::new(&SHA256);
        self.length = 0;
        Ok(())
    }

    fn fail(&self, source: std::io::Error) -> PullError {
        PullError::File { path: self.path.to_owned(), source }
    }
}

/// Says how to go on with what arrived.
fn note_kept(part: &Part<'_>) {
    if part.length > 0 {
        stdio::note("what arrived is kept: the same command goes on from there");
    }
}

/// Waits before the next attempt.
pub(super) fn pause(error: &PullError, failures: u32) {
    let [first, longest] = PAUSES;
    let pause = first.saturating_mul(2u32.saturating_pow(failures)).min(longest);
    let pause = error.retry_after().unwrap_or(pause);
    stdio::note(&format!("{error}; trying again in {:.1} s", pause.as_secs_f32()));
    sleep(pause);
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The text of a broken connection, for people.
fn broken(error: &std::io::Error) -> String {
    let timeout = error.get_ref().and_then(|inner| inner.downcast_ref::<ureq::Error>());
    let timeout = matches!(timeout, Some(ureq::Error::Timeout(_)));
    if timeout || matches!(error.kind(), ErrorKind::TimedOut | ErrorKind::WouldBlock) {
        return "no data in time (see --timeout)".to_owned();
    }
    format!("the connection broke: {error}")
}
