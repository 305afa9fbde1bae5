//! The parsers of requests, for tests that feed them damaged bytes.

use axum::body::Bytes;
use serde::de::DeserializeOwned;

use crate::server::parse;
use crate::{api, clips, dialects};

/// A kind of request: its name, and a function that says whether bytes are accepted.
pub(crate) type Reader = (&'static str, fn(&[u8]) -> bool);

/// Whether bytes are the JSON of a request.
pub(crate) fn is<T: DeserializeOwned>(body: &[u8]) -> bool {
    parse::<T>(body).is_ok()
}

const FORM: Reader = ("form", |body| {
    let body = Bytes::copy_from_slice(body);
    clips::pictures_in("multipart/form-data; boundary=limit", &body, 64)
        .is_some_and(|files| files.is_ok())
});

fn readers() -> impl Iterator<Item = &'static Reader> {
    api::READERS.iter().chain(dialects::readers()).chain([&FORM])
}

/// The names of the kinds of requests. The first byte of what [`read`] takes is a position in this list.
pub fn kinds() -> Vec<&'static str> {
    readers().map(|(name, _)| *name).collect()
}

/// Reads a request as the server does before it is answered. Whether it is accepted.
pub fn read(bytes: &[u8]) -> bool {
    let Some((kind, body)) = bytes.split_first() else { return false };
    let kind = usize::from(*kind) % kinds().len();
    readers().nth(kind).is_some_and(|(_, accepts)| accepts(body))
}
