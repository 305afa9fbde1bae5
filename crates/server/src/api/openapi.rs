//! The OpenAPI description, generated from the types of requests and answers.

use axum::Json;
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::{Map, Value, json};

use super::types::{
    EverythingAnswer, EverythingRequest, ExportRequest, FindAnswer, FindRequest, HealthAnswer,
    ImageAnswer, ImageQuery, InfoAnswer, ModelsAnswer, SegmentAnswer, SegmentRequest,
};
use super::video_types::{
    CancelAnswer, ClipExportRequest, TrackFrame, TrackRequest, VideoAnswer, VideoPromptAnswer,
    VideoPromptRequest, VideoQuery,
};
use crate::problem::ErrorAnswer;

type Describe = fn(&mut SchemaGenerator) -> Schema;

/// What a request or answer holds.
enum Content {
    Nothing,
    Json(Describe),
    /// Bytes of any type.
    Bytes,
    /// Server-sent events, of which `frame` has this type.
    Events(Describe),
}

struct Endpoint {
    method: &'static str,
    path: &'static str,
    summary: &'static str,
    request: Content,
    answer: Content,
}

fn json_of<T: JsonSchema>() -> Content {
    Content::Json(|generator| generator.subschema_for::<T>())
}

/// Every path of the API.
fn endpoints() -> Vec<Endpoint> {
    use Content::{Bytes, Nothing};
    let endpoint = |(method, path, summary), request, answer| Endpoint {
        method,
        path,
        summary,
        request,
        answer,
    };
    let mut all = vec![
        endpoint(("get", "/health", "Whether the server runs"), Nothing, json_of::<HealthAnswer>()),
        endpoint(("get", "/metrics", "Counters for Prometheus"), Nothing, Bytes),
        endpoint(("get", "/api/v1/info", "State of the server"), Nothing, json_of::<InfoAnswer>()),
        endpoint(("get", "/api/v1/models", "The models"), Nothing, json_of::<ModelsAnswer>()),
        endpoint(("get", "/api/v1/openapi.json", "This description"), Nothing, Bytes),
        endpoint(
            ("post", "/api/v1/images", "Add a picture and compute its features"),
            Bytes,
            json_of::<ImageAnswer>(),
        ),
        endpoint(
            ("get", "/api/v1/images/{id}", "A picture in memory"),
            Nothing,
            json_of::<ImageAnswer>(),
        ),
        endpoint(("delete", "/api/v1/images/{id}", "Forget a picture"), Nothing, Nothing),
        endpoint(
            ("post", "/api/v1/images/{id}/segment", "Masks of points and a box"),
            json_of::<SegmentRequest>(),
            json_of::<SegmentAnswer>(),
        ),
        endpoint(
            ("post", "/api/v1/images/{id}/find", "Objects of phrases and examples"),
            json_of::<FindRequest>(),
            json_of::<FindAnswer>(),
        ),
        endpoint(
            ("post", "/api/v1/images/{id}/everything", "Every mask of a picture"),
            json_of::<EverythingRequest>(),
            json_of::<EverythingAnswer>(),
        ),
        endpoint(
            ("post", "/api/v1/images/{id}/export", "A file of masks"),
            json_of::<ExportRequest>(),
            Bytes,
        ),
    ];
    all.extend(video_endpoints());
    all
}

/// The paths of clips.
fn video_endpoints() -> Vec<Endpoint> {
    use Content::{Bytes, Nothing};
    const OBJECT: &str = "/api/v1/videos/{id}/objects/{object}";
    const MARKS: &str = "/api/v1/videos/{id}/objects/{object}/frames/{frame}";
    let endpoint = |method, path, summary, (request, answer)| Endpoint {
        method,
        path,
        summary,
        request,
        answer,
    };
    let described = || json_of::<VideoAnswer>();
    let prompt = (json_of::<VideoPromptRequest>(), json_of::<VideoPromptAnswer>());
    let events = Content::Events(|generator| generator.subschema_for::<TrackFrame>());
    vec![
        endpoint("post", "/api/v1/videos", "Add a clip", (Bytes, described())),
        endpoint("get", "/api/v1/videos/{id}", "A clip", (Nothing, described())),
        endpoint("delete", "/api/v1/videos/{id}", "Forget a clip", (Nothing, Nothing)),
        endpoint("get", "/api/v1/videos/{id}/frames/{frame}", "A frame as JPEG", (Nothing, Bytes)),
        endpoint("post", "/api/v1/videos/{id}/prompt", "Point at an object of a frame", prompt),
        endpoint("delete", OBJECT, "Forget an object", (Nothing, Nothing)),
        endpoint("delete", MARKS, "Take the prompts on a frame back", (Nothing, Nothing)),
        endpoint(
            "post",
            "/api/v1/videos/{id}/track",
            "Track the objects: an event for each frame",
            (json_of::<TrackRequest>(), events),
        ),
        endpoint(
            "post",
            "/api/v1/videos/{id}/cancel",
            "Stop tracking",
            (Nothing, json_of::<CancelAnswer>()),
        ),
        endpoint(
            "post",
            "/api/v1/videos/{id}/export",
            "A file of the masks of all frames",
            (json_of::<ClipExportRequest>(), Bytes),
        ),
    ]
}

/// `GET /api/v1/openapi.json`.
pub(super) async fn document() -> Json<Value> {
    Json(description())
}

fn description() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.definitions_path = "/components/schemas".into();
        settings.meta_schema = None;
    });
    let mut generator = settings.into_generator();
    let error = generator.subschema_for::<ErrorAnswer>();
    let error = json!({
        "description": "What is wrong",
        "content": {"application/json": {"schema": error}},
    });
    let mut paths = Map::new();
    for endpoint in endpoints() {
        let operation = operation(&endpoint, &error, &mut generator);
        let path = paths.entry(endpoint.path).or_insert_with(|| json!({}));
        path[endpoint.method] = operation;
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "cutout",
            "description": "Segment Anything: masks from points, boxes, phrases, or of everything.",
            "version": env!("CARGO_PKG_VERSION"),
        },
        "paths": paths,
        "components": {
            "schemas": generator.take_definitions(true),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}, {}],
    })
}

fn operation(endpoint: &Endpoint, error: &Value, generator: &mut SchemaGenerator) -> Value {
    let content = |content: &Content, generator: &mut SchemaGenerator| match content {
        Content::Nothing => None,
        Content::Json(describe) => {
            Some(json!({"application/json": {"schema": describe(generator)}}))
        }
        Content::Bytes => Some(json!({"application/octet-stream": {}})),
        Content::Events(describe) => {
            Some(json!({"text/event-stream": {"itemSchema": describe(generator)}}))
        }
    };
    let mut parameters = Vec::new();
    for (name, kind) in [("id", "string"), ("object", "integer"), ("frame", "integer")] {
        if endpoint.path.contains(&format!("{{{name}}}")) {
            let schema = json!({"type": kind});
            parameters
                .push(json!({"name": name, "in": "path", "required": true, "schema": schema}));
        }
    }
    match endpoint.path {
        "/api/v1/images" => parameters.extend(query_parameters::<ImageQuery>(generator)),
        "/api/v1/videos" => parameters.extend(query_parameters::<VideoQuery>(generator)),
        _ => {}
    }
    let mut success = json!({"description": endpoint.summary});
    if let Some(content) = content(&endpoint.answer, generator) {
        success["content"] = content;
    }
    let status = if endpoint.method == "delete" { "204" } else { "200" };
    let mut operation = json!({
        "summary": endpoint.summary,
        "parameters": parameters,
        "responses": {status: success, "4XX": error, "5XX": error},
    });
    if let Some(content) = content(&endpoint.request, generator) {
        operation["requestBody"] = json!({"required": true, "content": content});
    }
    operation
}

/// The fields of a query as parameters.
fn query_parameters<T: JsonSchema>(generator: &mut SchemaGenerator) -> Vec<Value> {
    let schema = T::json_schema(generator);
    let fields = schema.get("properties").and_then(Value::as_object).cloned().unwrap_or_default();
    let parameter =
        |(name, schema): (String, Value)| json!({"name": name, "in": "query", "schema": schema});
    fields.into_iter().map(parameter).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every `$ref` in a value.
    fn references(value: &Value, found: &mut Vec<String>) {
        match value {
            Value::Object(fields) => {
                let own = fields.get("$ref").and_then(Value::as_str).map(str::to_owned);
                found.extend(own);
                fields.values().for_each(|value| references(value, found));
            }
            Value::Array(values) => values.iter().for_each(|value| references(value, found)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    #[test]
    fn every_reference_points_at_a_schema() {
        let description = description();
        let mut found = Vec::new();
        references(&description, &mut found);
        assert!(found.len() > 10, "{found:?}");
        for reference in found {
            let path = reference.strip_prefix('#').unwrap();
            assert!(description.pointer(path).is_some(), "{reference}");
        }
        let model = "/paths/~1api~1v1~1images/post/parameters/0/name";
        assert_eq!(description.pointer(model).unwrap(), "model");
    }
}
