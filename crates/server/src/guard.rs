//! What every request passes before it is answered: host, origin, token, body; and the headers of every answer.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{DefaultBodyLimit, MatchedPath, Request, State};
use axum::http::header::{self, HeaderMap, HeaderName, HeaderValue};
use axum::http::{Method, StatusCode, Uri};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::digest::{SHA256, digest};
use tokio::sync::Semaphore;

use crate::options::Limits;
use crate::problem::Problem;
use crate::server::App;
use crate::{api, dialects, page};

/// Unit in which the bytes of bodies are counted.
const BODY_UNIT: usize = 64 << 10;

/// The page loads nothing from elsewhere, and no other page can frame it.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; \
     connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Who may ask, and how much.
#[derive(Clone)]
pub(crate) struct Guard(Arc<Rules>);

struct Rules {
    /// SHA-256 of the token.
    token: Option<Vec<u8>>,
    allowed_origins: Vec<String>,
    /// Only this machine can connect and needs no token, so that pages of other hosts must be kept out.
    is_local: bool,
    limits: Limits,
    bodies: Semaphore,
}

/// All routes behind the guard.
pub(crate) fn router(app: App, guard: Guard) -> Router {
    Router::new()
        .merge(api::routes())
        .merge(dialects::routes())
        .merge(page::routes())
        .fallback(async |uri: Uri| {
            let path: String = uri.path().chars().take(100).collect();
            Problem::Missing(format!("there is nothing at {path}"))
        })
        .method_not_allowed_fallback(async || Problem::Method)
        .with_state(app.clone())
        // The guard has received the body within limits of its own.
        .layer(DefaultBodyLimit::disable())
        .layer(from_fn_with_state(guard, check))
        .layer(from_fn_with_state(app, measure))
}

impl Guard {
    pub(crate) fn new(
        address: SocketAddr,
        token: Option<String>,
        allowed_origins: Vec<String>,
        limits: Limits,
    ) -> Self {
        let is_local = address.ip().is_loopback() && token.is_none();
        let bodies = Semaphore::new(limits.bodies_bytes.div_ceil(BODY_UNIT));
        let token = token.map(|token| hashed(token.as_bytes()));
        Guard(Arc::new(Rules { token, allowed_origins, is_local, limits, bodies }))
    }
}

/// Counts requests and adds the headers of every answer.
async fn measure(State(app): State<App>, request: Request, next: Next) -> Response {
    let start = Instant::now();
    let route = request.extensions().get::<MatchedPath>().map(|path| path.as_str().to_owned());
    let mut response = next.run(request).await;
    let route = route.unwrap_or_else(|| "other".to_owned());
    app.metrics.count(&route, response.status().as_u16(), start.elapsed());
    let fixed = [
        (header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ];
    let headers = response.headers_mut();
    for (name, value) in fixed {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}

async fn check(State(guard): State<Guard>, request: Request, next: Next) -> Response {
    let rules = &*guard.0;
    let origin = match rules.origin(request.headers()) {
        Ok(origin) => origin,
        Err(problem) => return problem.into_response(),
    };
    let mut response = if origin.is_some() && request.method() == Method::OPTIONS {
        StatusCode::NO_CONTENT.into_response()
    } else {
        rules.answer(request, next).await.unwrap_or_else(IntoResponse::into_response)
    };
    if let Some(origin) = origin {
        allow(response.headers_mut(), origin);
    }
    response
}

/// Lets a page of another origin read an answer.
fn allow(headers: &mut HeaderMap, origin: HeaderValue) {
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.insert(header::VARY, HeaderValue::from_static("origin"));
    let fixed = |text| HeaderValue::from_static(text);
    headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, fixed("GET, POST, DELETE"));
    headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, fixed("authorization, content-type"));
}

impl Rules {
    async fn answer(&self, request: Request, next: Next) -> Result<Response, Problem> {
        self.check_host(request.headers())?;
        let is_known = self.is_known(&request);
        let may_be_in_body = dialects::has_key_in_body(request.uri().path());
        if !is_known && !may_be_in_body {
            return Err(Problem::Unauthorized);
        }
        // Held until the request is answered, as its body is in memory for so long.
        let _counted;
        let request = if request.method() == Method::POST {
            let (parts, body) = request.into_parts();
            let most = self.most_bytes(parts.uri.path());
            _counted = self.reserve(&parts.headers, most)?;
            let body = self.receive(body, most).await?;
            let key = || dialects::key_in(&body).is_some_and(|key| self.is_token(key.as_bytes()));
            if !is_known && !key() {
                return Err(Problem::Unauthorized);
            }
            Request::from_parts(parts, Body::from(body))
        } else {
            request
        };
        Ok(next.run(request).await)
    }

    /// Keeps out pages that reach this machine under a name of their own.
    fn check_host(&self, headers: &HeaderMap) -> Result<(), Problem> {
        let Some(host) = headers.get(header::HOST).filter(|_| self.is_local) else { return Ok(()) };
        let host = host.to_str().unwrap_or_default();
        let name = match host.rsplit_once(':') {
            Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
            Some(_) | None => host,
        };
        let name = name.trim_start_matches('[').trim_end_matches(']');
        let is_address =
            name.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback());
        if is_address || name.eq_ignore_ascii_case("localhost") {
            return Ok(());
        }
        Err(Problem::Forbidden("this server answers this machine only, as localhost".to_owned()))
    }

    /// The origin of another page that may read the answer; an error for one that may not ask.
    fn origin(&self, headers: &HeaderMap) -> Result<Option<HeaderValue>, Problem> {
        let Some(origin) = headers.get(header::ORIGIN) else { return Ok(None) };
        let text = origin.to_str().unwrap_or_default();
        let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
        let own = text.split_once("://").map(|(_, host)| host);
        if own.is_some() && own == host {
            return Ok(None);
        }
        if self.allowed_origins.iter().any(|allowed| allowed == text) {
            return Ok(Some(origin.clone()));
        }
        Err(Problem::Forbidden("pages of other origins may not use this server".to_owned()))
    }

    /// Whether a request needs no token, or carries it in its head.
    fn is_known(&self, request: &Request) -> bool {
        let is_public = request.method() == Method::GET && page::is_public(request.uri().path());
        let sent = || sent_tokens(request.headers(), request.uri());
        self.token.is_none() || is_public || sent().iter().any(|sent| self.is_token(sent))
    }

    fn is_token(&self, sent: &[u8]) -> bool {
        self.token.as_ref().is_some_and(|token| is_equal(&hashed(sent), token))
    }

    /// Most bytes of the body of a request to a path.
    fn most_bytes(&self, path: &str) -> usize {
        let is_clip = api::takes_clips(path) || dialects::takes_clips(path);
        if is_clip { self.limits.clip_body_bytes } else { self.limits.body_bytes }
    }

    /// Counts the bytes of a body before it is received.
    fn reserve(
        &self,
        headers: &HeaderMap,
        most: usize,
    ) -> Result<tokio::sync::SemaphorePermit<'_>, Problem> {
        let length = headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok());
        let length = length.and_then(|length| length.parse().ok()).unwrap_or(most);
        if length > most {
            return Err(Problem::TooLong(most));
        }
        let units = u32::try_from(length.div_ceil(BODY_UNIT).max(1)).unwrap_or(u32::MAX);
        let full = |_| Problem::Busy("too many requests are being received");
        self.bodies.try_acquire_many(units).map_err(full)
    }

    async fn receive(&self, body: Body, most: usize) -> Result<Bytes, Problem> {
        let body_time = self.limits.body_time;
        let received = tokio::time::timeout(body_time, to_bytes(body, most)).await;
        let received = received.map_err(|_| Problem::Slow(body_time.as_secs()))?;
        // The other reason is a client that left, which reads no answer.
        received.map_err(|_| Problem::TooLong(most))
    }
}

/// The tokens that a request carries: `Authorization: Bearer`, `Token` or the password of `Basic`; a header `Token`; a
/// parameter `api_key`.
fn sent_tokens(headers: &HeaderMap, uri: &Uri) -> Vec<Vec<u8>> {
    let mut tokens = Vec::new();
    let authorization = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    if let Some((scheme, value)) = authorization.and_then(|text| text.split_once(' ')) {
        let value = value.trim();
        if scheme.eq_ignore_ascii_case("basic") {
            let decoded = STANDARD.decode(value).unwrap_or_default();
            let colon = decoded.iter().position(|byte| *byte == b':');
            tokens.extend(colon.map(|colon| decoded[colon + 1..].to_vec()));
        } else {
            tokens.push(value.as_bytes().to_vec());
        }
    }
    tokens.extend(headers.get("token").map(|value| value.as_bytes().to_vec()));
    let parameters = uri.query().unwrap_or_default().split('&');
    let key = parameters.filter_map(|parameter| parameter.strip_prefix("api_key="));
    tokens.extend(key.map(|key| key.as_bytes().to_vec()));
    tokens
}

fn hashed(bytes: &[u8]) -> Vec<u8> {
    digest(&SHA256, bytes).as_ref().to_vec()
}

/// Whether two hashes are equal, in a time that does not depend on where they differ.
fn is_equal(one: &[u8], other: &[u8]) -> bool {
    let difference = one.iter().zip(other).fold(0, |all, (one, other)| all | (one ^ other));
    one.len() == other.len() && std::hint::black_box(difference) == 0
}
