//! Errors of requests, with their status and JSON.

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use cutout_imaging::{DecodeError, EncodeError, ImageError};
use cutout_sam::{EverythingError, FindError, PhraseTrackError, SegmentError, TrackError};
use cutout_tensor::TensorError;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Seconds after which a client should try again.
const RETRY_AFTER: u64 = 2;

/// Why a request has no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Problem {
    /// The request is wrong.
    #[error("{0}")]
    Invalid(String),
    /// The token is missing or wrong.
    #[error("a token is needed: send it as `Authorization: Bearer TOKEN`")]
    Unauthorized,
    /// Another page asks.
    #[error("{0}")]
    Forbidden(String),
    /// There is no such thing.
    #[error("{0}")]
    Missing(String),
    /// The path exists with another method.
    #[error("this path takes another method")]
    Method,
    /// The request does not fit what is under way.
    #[error("{0}")]
    Conflict(String),
    /// A newer request of the same client replaces this one.
    #[error("a newer request of this client replaces this one")]
    Stale,
    /// The request did not arrive in time.
    #[error("the request did not arrive within {0} s")]
    Slow(u64),
    /// The request is too long.
    #[error("the request has more than {0} bytes")]
    TooLong(usize),
    /// There is too much to do.
    #[error("{0}; try again in {RETRY_AFTER} s")]
    Busy(&'static str),
    /// There was no answer in time.
    #[error("no answer within {0} s")]
    TimedOut(u64),
    /// The client is gone.
    #[error("the client closed the connection")]
    Gone,
    /// Something of ours failed.
    #[error("{0}")]
    Internal(String),
}

/// The JSON of an error.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct ErrorAnswer {
    /// What happened.
    pub(crate) error: ErrorText,
}

/// What happened, for programs and for people.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct ErrorText {
    /// A word for programs.
    pub(crate) code: String,
    /// A sentence for people.
    pub(crate) message: String,
}

impl ErrorAnswer {
    pub(crate) fn of(problem: &Problem) -> Self {
        let (code, message) = (problem.status().1.to_owned(), problem.to_string());
        ErrorAnswer { error: ErrorText { code, message } }
    }
}

impl Problem {
    /// Status and code.
    pub(crate) fn status(&self) -> (StatusCode, &'static str) {
        match self {
            Problem::Invalid(_) => (StatusCode::BAD_REQUEST, "invalid"),
            Problem::Unauthorized => (StatusCode::UNAUTHORIZED, "unauthorized"),
            Problem::Forbidden(_) => (StatusCode::FORBIDDEN, "forbidden"),
            Problem::Missing(_) => (StatusCode::NOT_FOUND, "not_found"),
            Problem::Method => (StatusCode::METHOD_NOT_ALLOWED, "method"),
            Problem::Conflict(_) => (StatusCode::CONFLICT, "conflict"),
            Problem::Stale => (StatusCode::CONFLICT, "stale"),
            Problem::Slow(_) => (StatusCode::REQUEST_TIMEOUT, "slow"),
            Problem::TooLong(_) => (StatusCode::PAYLOAD_TOO_LARGE, "too_long"),
            Problem::Busy(_) => (StatusCode::SERVICE_UNAVAILABLE, "busy"),
            Problem::TimedOut(_) => (StatusCode::GATEWAY_TIMEOUT, "timed_out"),
            // Nobody reads this.
            Problem::Gone => (StatusCode::BAD_REQUEST, "gone"),
            Problem::Internal(_) => (StatusCode::INTERNAL_SERVER_ERROR, "internal"),
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut response = (self.status().0, Json(ErrorAnswer::of(&self))).into_response();
        let headers = response.headers_mut();
        if let Problem::Busy(_) = self {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(RETRY_AFTER));
        }
        if let Problem::Unauthorized = self {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

impl From<SegmentError> for Problem {
    fn from(error: SegmentError) -> Self {
        match error {
            SegmentError::Prompt(error) => Problem::Invalid(error.to_string()),
            SegmentError::Model(_) | SegmentError::Image(_) => Problem::Internal(error.to_string()),
        }
    }
}

impl From<FindError> for Problem {
    fn from(error: FindError) -> Self {
        match error {
            FindError::Model(_) | FindError::Image(_) => Problem::Internal(error.to_string()),
            FindError::NotAFinder { .. }
            | FindError::Nothing
            | FindError::Phrase { .. }
            | FindError::Exemplar(_)
            | FindError::NoPoints
            | FindError::OutOfRange { .. } => Problem::Invalid(error.to_string()),
        }
    }
}

impl From<TrackError> for Problem {
    fn from(error: TrackError) -> Self {
        match error {
            TrackError::Model(_)
            | TrackError::Image(_)
            | TrackError::NoFrame
            | TrackError::OtherFrame { .. }
            | TrackError::BeforeTheFirst
            | TrackError::StateFile(_)
            | TrackError::State { .. }
            | TrackError::History { .. } => Problem::Internal(error.to_string()),
            TrackError::NoMemory { .. }
            | TrackError::UnknownObject { .. }
            | TrackError::MaskSize { .. }
            | TrackError::FrameSize { .. }
            | TrackError::Logits
            | TrackError::Prompt(_) => Problem::Invalid(error.to_string()),
        }
    }
}

impl From<PhraseTrackError> for Problem {
    fn from(error: PhraseTrackError) -> Self {
        match error {
            PhraseTrackError::Find(error) => error.into(),
            PhraseTrackError::Track(error) => error.into(),
            PhraseTrackError::Image(error) => error.into(),
            PhraseTrackError::Beyond { .. }
            | PhraseTrackError::Ended { .. }
            | PhraseTrackError::Full { .. }
            | PhraseTrackError::UnknownPhrase { .. }
            | PhraseTrackError::PhraseAmongExemplars
            | PhraseTrackError::Multiplex
            | PhraseTrackError::OutOfRange { .. } => Problem::Invalid(error.to_string()),
        }
    }
}

impl From<EverythingError> for Problem {
    fn from(error: EverythingError) -> Self {
        match error {
            EverythingError::Segment(error) => error.into(),
            EverythingError::Stopped => Problem::Gone,
            EverythingError::Option(_) | EverythingError::CropsNeedThePicture(_) => {
                Problem::Invalid(error.to_string())
            }
        }
    }
}

impl From<DecodeError> for Problem {
    fn from(error: DecodeError) -> Self {
        Problem::Invalid(error.to_string())
    }
}

impl From<ImageError> for Problem {
    fn from(error: ImageError) -> Self {
        Problem::Internal(error.to_string())
    }
}

impl From<TensorError> for Problem {
    fn from(error: TensorError) -> Self {
        Problem::Internal(error.to_string())
    }
}

impl From<EncodeError> for Problem {
    fn from(error: EncodeError) -> Self {
        Problem::Internal(error.to_string())
    }
}
