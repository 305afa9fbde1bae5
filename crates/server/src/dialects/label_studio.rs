//! Label Studio's ML backend: clicks and boxes become brush strokes, polygons or bitmasks.

mod brush;
mod config;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use cutout_imaging::{MaskDepth, Rle, Size, encode_mask};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Asked, Cut, largest_outline, outlines, rect_between};
use crate::library::Picture;
use crate::problem::Problem;
use crate::requests::{Reader, is};
use crate::server::{App, Shared, parse};
use config::{Control, ControlKind};

/// Most projects, and most addresses of pictures, that are remembered.
const MOST: usize = 256;
/// How far the corners of polygons may be from the pixels.
const TOLERANCE: f64 = 1.0;

/// What Label Studio said about itself.
#[derive(Default)]
pub(crate) struct LabelStudio {
    /// Hosts by project.
    hosts: Mutex<HashMap<String, Host>>,
    /// Names of pictures in the library by address.
    pictures: Mutex<HashMap<String, String>>,
    regions: AtomicU64,
}

#[derive(Clone)]
struct Host {
    /// Scheme, host and port.
    origin: String,
    token: String,
}

#[derive(Deserialize)]
struct Setup {
    #[serde(default)]
    project: Value,
    #[serde(default)]
    hostname: Option<String>,
    #[serde(default)]
    access_token: Option<String>,
}

#[derive(Deserialize)]
struct Predict {
    tasks: Vec<Task>,
    #[serde(default)]
    project: Value,
    #[serde(default)]
    label_config: String,
    #[serde(default)]
    params: Parameters,
}

#[derive(Deserialize)]
struct Task {
    #[serde(default)]
    data: HashMap<String, Value>,
}

#[derive(Default, Deserialize)]
struct Parameters {
    #[serde(default)]
    context: Option<Context>,
}

#[derive(Deserialize)]
struct Context {
    #[serde(default)]
    result: Vec<Region>,
}

/// A smart keypoint or rectangle; numbers are percent of the picture.
#[derive(Deserialize)]
struct Region {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    is_positive: Option<Value>,
    value: Map,
}

type Map = serde_json::Map<String, Value>;

/// The parsers of requests: the labelling configuration and the marks too.
pub(super) const READERS: &[Reader] = &[
    ("label-studio-setup", is::<Setup>),
    ("label-studio-predict", |body| {
        let Ok(request) = parse::<Predict>(body) else { return false };
        let regions = request.params.context.map(|context| context.result).unwrap_or_default();
        Control::find(&request.label_config).is_some()
            && asked_by(&regions, Size::new(40, 30)).is_ok()
    }),
];

/// `POST /setup`: where pictures come from.
pub(super) async fn setup(State(app): State<App>, body: Bytes) -> Result<Json<Value>, Problem> {
    let setup: Setup = parse(&body)?;
    if let Some(origin) = setup.hostname.as_deref().filter(|host| !host.is_empty()) {
        let origin = origin.trim_end_matches('/');
        let rest = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
        let is_host = |rest: &str| !rest.is_empty() && !rest.contains(['/', '@', '?', '#', '\\']);
        if !rest.is_some_and(is_host) {
            return Err(Problem::Invalid("hostname is scheme, host and port".to_owned()));
        }
        let token = setup.access_token.unwrap_or_default();
        let host = Host { origin: origin.to_owned(), token };
        remember(&app.label_studio.hosts, project_of(&setup.project), host);
    }
    Ok(Json(json!({"model_version": version()})))
}

/// `POST /webhook`: nothing is learnt from annotations.
pub(super) async fn webhook() -> Json<Value> {
    Json(json!({}))
}

/// `POST /predict`.
pub(super) async fn predict(State(app): State<App>, body: Bytes) -> Result<Json<Value>, Problem> {
    let Predict { tasks, project, label_config, params } = parse(&body)?;
    app.check_count("tasks", tasks.len())?;
    let regions = params.context.map(|context| context.result).unwrap_or_default();
    let control = Control::find(&label_config);
    let (Some(control), [task], false) = (control, &tasks[..], regions.is_empty()) else {
        // A batch has no clicks. Label Studio takes an empty list for a failure, but not a list of empty results.
        let nothing = json!({"result": [], "score": 0.0, "model_version": version()});
        return Ok(Json(json!({"results": vec![nothing; tasks.len()]})));
    };
    let address = task.data.get(&control.data_key).and_then(Value::as_str).ok_or_else(|| {
        Problem::Invalid(format!("the task has no picture in data.{}", control.data_key))
    })?;
    let picture = app.labelled_picture(address, &project_of(&project)).await?;
    let size = picture.size();
    let asked = asked_by(&regions, size)?;
    let cut = app.cut(picture, &[asked]).await?.pop();
    let label = regions.iter().rev().find_map(Region::label);
    let number = app.label_studio.regions.fetch_add(1, Ordering::Relaxed);
    let result = match &cut {
        Some(cut) if cut.rle.area() > 0 => vec![region(&control, cut, label, number)?],
        Some(_) | None => Vec::new(),
    };
    let score = cut.map_or(0.0, |cut| cut.score);
    let answer = json!({"result": result, "score": score, "model_version": version()});
    Ok(Json(json!({"results": [answer]})))
}

fn version() -> String {
    format!("cutout-{}", env!("CARGO_PKG_VERSION"))
}

/// The number of a project: `7.1700000000` and 7 are project 7.
fn project_of(sent: &Value) -> String {
    let text = sent.as_str().map_or_else(|| sent.to_string(), str::to_owned);
    text.split('.').next().unwrap_or_default().chars().take(40).collect()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Adds an entry; a full table is emptied first.
fn remember<T>(table: &Mutex<HashMap<String, T>>, key: String, value: T) {
    let mut table = lock(table);
    if table.len() >= MOST {
        table.clear();
    }
    table.insert(key, value);
}

impl Shared {
    /// The picture of a task: in the address itself, or fetched from the host of the project and from nowhere else.
    async fn labelled_picture(
        &self,
        address: &str,
        project: &str,
    ) -> Result<Arc<Picture>, Problem> {
        if address.starts_with("data:") {
            return self.picture_in(address, None).await;
        }
        let host = lock(&self.label_studio.hosts).get(project).cloned();
        let host = host.ok_or_else(|| {
            Problem::Invalid(
                "this project was not set up: connect the model in Label Studio again".to_owned(),
            )
        })?;
        let url = match address.strip_prefix(&host.origin) {
            Some(path) if path.starts_with('/') => address.to_owned(),
            Some(_) | None if address.starts_with('/') => format!("{}{address}", host.origin),
            Some(_) | None => {
                let from = host.origin;
                return Err(Problem::Forbidden(format!("pictures are fetched from {from} only")));
            }
        };
        let known = lock(&self.label_studio.pictures).get(&url).cloned();
        if let Some(picture) = known.and_then(|id| self.library.get(&id)) {
            return Ok(picture);
        }
        let fetch = self.fetch.clone().ok_or_else(|| {
            Problem::Invalid("this server fetches no pictures: send them as data URLs".to_owned())
        })?;
        let (own, most) = (url.clone(), self.limits.body_bytes);
        let bytes = self
            .off_thread(move || {
                let authorization = format!("Token {}", host.token);
                let failed = |error| Problem::Invalid(format!("{own}: {error}"));
                fetch(&own, &authorization, most).map_err(failed)
            })
            .await?;
        let picture = self.add_picture(Bytes::from(bytes), None).await?;
        remember(&self.label_studio.pictures, url, picture.id.clone());
        Ok(picture)
    }
}

impl Region {
    fn number(&self, name: &str) -> Result<f64, Problem> {
        let found = self.value.get(name).and_then(Value::as_f64);
        found.ok_or_else(|| Problem::Invalid(format!("a {} has no {name}", self.kind)))
    }

    /// Beside the value in older versions, inside it in newer ones; a region without it is positive.
    fn is_positive(&self) -> bool {
        let said = self.is_positive.as_ref().or_else(|| self.value.get("positive"));
        !said.is_some_and(|said| said == false || said == 0)
    }

    fn label(&self) -> Option<&str> {
        self.value.get(&self.kind)?.as_array()?.first()?.as_str()
    }
}

fn asked_by(regions: &[Region], size: Size) -> Result<Asked, Problem> {
    let (width, height) = (size.width as f64, size.height as f64);
    let mut asked = Asked::default();
    for region in regions {
        let x = (region.number("x")? / 100.0 * width).clamp(0.0, width);
        let y = (region.number("y")? / 100.0 * height).clamp(0.0, height);
        match &*region.kind {
            "keypointlabels" | "keypoint" => asked.add([x, y], region.is_positive()),
            "rectanglelabels" | "rectangle" => {
                let right = (x + region.number("width")? / 100.0 * width).clamp(0.0, width);
                let bottom = (y + region.number("height")? / 100.0 * height).clamp(0.0, height);
                asked.rect = Some(rect_between([x, y], [right, bottom]));
            }
            kind => return Err(Problem::Invalid(format!("a region of type {kind:?}"))),
        }
    }
    Ok(asked)
}

/// The mask as a region of the control.
fn region(
    control: &Control,
    cut: &Cut,
    label: Option<&str>,
    number: u64,
) -> Result<Value, Problem> {
    let size = cut.rle.size();
    let (kind, mut value) = match control.kind {
        ControlKind::Brush => {
            ("brushlabels", json!({"format": "rle", "rle": brush::packed(&cut.rle.to_mask()?)}))
        }
        ControlKind::Polygon => {
            ("polygonlabels", json!({"points": percent(&cut.rle)?, "closed": true}))
        }
        ControlKind::Bitmask => {
            let png = encode_mask(&cut.rle.to_mask()?, MaskDepth::Byte)?;
            let url = format!("data:image/png;base64,{}", STANDARD.encode(png));
            ("bitmasklabels", json!({"imageDataURL": url}))
        }
    };
    value[kind] = json!(label.into_iter().collect::<Vec<_>>());
    Ok(json!({
        "id": format!("cutout-{number}"),
        "from_name": control.name,
        "to_name": control.to_name,
        "original_width": size.width,
        "original_height": size.height,
        "image_rotation": 0,
        "type": kind,
        "score": cut.score,
        "readonly": false,
        "value": value,
    }))
}

/// The largest outline in percent of the picture.
fn percent(rle: &Rle) -> Result<Vec<[f64; 2]>, Problem> {
    let (width, height) = (rle.size().width as f64, rle.size().height as f64);
    let outlines = outlines(rle, TOLERANCE)?;
    let relative = |[x, y]: &[f64; 2]| [100.0 * x / width, 100.0 * y / height];
    Ok(largest_outline(&outlines).iter().map(relative).collect())
}
