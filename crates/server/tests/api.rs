//! The native API: pictures, masks, files, and what is refused.

use cutout_imaging::{DecodeLimits, Rle, Size, decode};
use cutout_sam::{Prompt, Sam};
use serde_json::{Value, json};

use crate::support::{Running, STILL_LIFE};

/// The mask of an answer.
fn rle(mask: &Value) -> Rle {
    let side = |index: usize| mask["rle"]["size"][index].as_u64().unwrap() as usize;
    let counts = mask["rle"]["counts"].as_str().unwrap();
    Rle::from_coco_string(Size::new(side(1), side(0)), counts).unwrap()
}

fn segment(server: &Running, id: &str, body: Value) -> Value {
    server.post(&format!("/api/v1/images/{id}/segment"), &body).json(200)
}

#[test]
fn masks_over_http_are_those_of_the_library() {
    let server = Running::start();
    let first = server.send("POST", "/api/v1/images", &[], STILL_LIFE).json(200);
    assert_eq!((first["width"].as_u64(), first["height"].as_u64()), (Some(640), Some(480)));
    assert!(first["embed_ms"].as_f64().unwrap() > 0.0 && first["embedded"] == true);
    let again = server.send("POST", "/api/v1/images?model=built-in", &[], STILL_LIFE).json(200);
    assert_eq!(again["image_id"], first["image_id"]);
    assert_eq!(again["embed_ms"], 0.0, "the features are in memory");
    let id = first["image_id"].as_str().unwrap();
    assert_eq!(server.get(&format!("/api/v1/images/{id}")).json(200)["embedded"], true);

    let image = decode(STILL_LIFE, "", &DecodeLimits::default()).unwrap();
    let scene = Sam::builtin().unwrap().embed(&image).unwrap();
    let click = segment(&server, id, json!({"points": [[200, 280, 1]]}));
    let expected = scene.segment(&Prompt::point(200, 280)).unwrap();
    assert_eq!(click["masks"].as_array().unwrap().len(), 3);
    assert_eq!(click["best"].as_u64(), Some(expected.best_index() as u64));
    for (mask, segment) in click["masks"].as_array().unwrap().iter().zip(expected.iter()) {
        assert_eq!(rle(mask), segment.rle().unwrap());
        assert_eq!(mask["area"].as_u64(), Some(segment.rle().unwrap().area() as u64));
    }
    // A mask is refined by its name, as the library does by its logits.
    let best = &click["masks"][expected.best_index()];
    let refine = json!({"points": [[200, 280, 1], [60, 60, 0]], "mask_id": best["mask_id"]});
    let refined = segment(&server, id, refine);
    let prompt = Prompt::logits(expected.best().logits().clone()).and(200, 280).not(60, 60);
    assert_eq!(refined["masks"].as_array().unwrap().len(), 1);
    assert_eq!(rle(&refined["masks"][0]), scene.segment(&prompt).unwrap().best().rle().unwrap());
    let boxed = segment(&server, id, json!({"box": [100, 150, 320, 420], "multimask": true}));
    assert_eq!(boxed["masks"].as_array().unwrap().len(), 3);

    assert_eq!(server.send("DELETE", &format!("/api/v1/images/{id}"), &[], b"").status, 204);
    let gone = server.post(&format!("/api/v1/images/{id}/segment"), &json!({"box": [1, 1, 9, 9]}));
    assert!(gone.error(404).contains("send it again"));
}

#[test]
fn a_mask_has_the_forms_that_are_asked_for() {
    let server = Running::start();
    let id = server.add_still_life();
    let outputs = json!(["rle", "path", "polygons", "png"]);
    let body = json!({"points": [[200, 280, 1]], "outputs": outputs, "multimask": false});
    let answer = segment(&server, &id, body);
    let mask = &answer["masks"][0];
    let expected = rle(mask).to_mask().unwrap();
    assert!(mask["path"].as_str().unwrap().starts_with('M'));
    use base64::Engine as _;
    let png = base64::engine::general_purpose::STANDARD.decode(mask["png"].as_str().unwrap());
    let png = decode(&png.unwrap(), "", &DecodeLimits::default()).unwrap();
    assert!(
        expected
            .pixels()
            .iter()
            .zip(png.as_rgb().chunks(3))
            .all(|(set, rgb)| *set == (rgb[0] == 255))
    );
    let polygons: Vec<cutout_imaging::Polygon> = mask["polygons"]
        .as_array()
        .unwrap()
        .iter()
        .map(|rings| {
            let mut rings: Vec<Vec<[f64; 2]>> = serde_json::from_value(rings.clone()).unwrap();
            cutout_imaging::Polygon { outer: rings.remove(0), holes: rings }
        })
        .collect();
    assert_eq!(cutout_imaging::fill_polygons(expected.size(), &polygons).unwrap(), expected);
    // Previews hold one mask and nothing to refine.
    let hover = json!({"client": "me", "sequence": 1});
    let body = json!({"points": [[200, 280, 1]], "outputs": ["path"], "hover": hover});
    let preview = segment(&server, &id, body);
    assert_eq!(preview["masks"].as_array().unwrap().len(), 1);
    assert!(
        preview["masks"][0].get("mask_id").is_none() && preview["masks"][0].get("rle").is_none()
    );
    let body = json!({"points_per_side": 4, "pred_iou_thresh": 0.0, "stability_score_thresh": 0.0});
    let all = server.post(&format!("/api/v1/images/{id}/everything"), &body).json(200);
    assert!(!all["masks"].as_array().unwrap().is_empty());
}

#[test]
fn files_hold_the_objects() {
    let server = Running::start();
    let id = server.add_still_life();
    let answer = segment(&server, &id, json!({"points": [[200, 280, 1]], "multimask": false}));
    let mask = &answer["masks"][0];
    let area = mask["area"].as_u64().unwrap();
    let object = json!({"name": "a <pot>", "rle": mask["rle"], "colour": "#102030", "score": 0.5});
    let export = |format: &str| {
        let body = json!({"format": format, "file_name": "still-life.jpg", "objects": [object]});
        server.post(&format!("/api/v1/images/{id}/export"), &body)
    };
    let count = |format: &str, is_set: &dyn Fn(&[u8]) -> bool| {
        let file = export(format);
        assert_eq!(
            (file.status, file.header("content-type")),
            (200, Some("image/png")),
            "{format}"
        );
        let png = decode(&file.body, "", &DecodeLimits::default()).unwrap();
        png.as_rgb().chunks(3).filter(|pixel| is_set(pixel)).count() as u64
    };
    assert_eq!(count("mask", &|pixel| pixel == [255, 255, 255]), area);
    assert_eq!(count("labels", &|pixel| pixel != [0, 0, 0]), area);
    assert_eq!(count("cutout", &|_| true), 640 * 480);
    assert_eq!(count("overlay", &|_| true), 640 * 480);
    let svg = export("svg");
    assert_eq!(svg.header("content-disposition"), Some("attachment; filename=\"masks.svg\""));
    let svg = String::from_utf8(svg.body).unwrap();
    assert!(svg.contains("fill=\"#102030\"") && svg.contains("a &lt;pot&gt;"), "{svg}");
    let coco = export("coco").json(200);
    assert_eq!(coco["annotations"][0]["segmentation"], mask["rle"]);
    assert_eq!(coco["categories"][0]["name"], "a <pot>");
    assert_eq!(coco["images"][0]["file_name"], "still-life.jpg");
    let geojson = export("geojson").json(200);
    assert_eq!(geojson["features"][0]["properties"]["area"], area);

    let wrong = |rle: Value, colour: &str| {
        let object = json!({"rle": rle, "colour": colour});
        let body = json!({"format": "mask", "objects": [object]});
        server.post(&format!("/api/v1/images/{id}/export"), &body).error(400)
    };
    let message = wrong(json!({"size": [2, 2], "counts": "04"}), "#102030");
    assert!(message.contains("[480, 640]"), "{message}");
    assert!(wrong(json!({"size": [480, 640], "counts": "zz"}), "#102030").contains("counts"));
    assert!(wrong(mask["rle"].clone(), "red").contains("#rrggbb"));
}

#[test]
fn wrong_requests_say_what_is_wrong() {
    let server = Running::start();
    let id = server.add_still_life();
    let path = format!("/api/v1/images/{id}/segment");
    for (body, words) in [
        (json!({}), "prompt"),
        (json!({"points": [[700, 10, 1]]}), "outside"),
        (json!({"points": [[10, 10, 3]]}), "label"),
        (json!({"points": [[10, 10]]}), "JSON"),
        (json!({"box": [9, 9, 1, 1]}), "box"),
        (json!({"point": [[1, 1, 1]]}), "unknown field"),
        (json!({"points": [[1, 1, 1]], "simplify": -1}), "simplify"),
        (json!({"points": [[1, 1, 1]], "hover": {"client": "", "sequence": 1}}), "hover.client"),
        (json!({"points": vec![[1, 1, 1]; 300]}), "at most 256"),
    ] {
        let message = server.post(&path, &body).error(400);
        assert!(message.contains(words), "{body}: {message}");
    }
    let find = server.post(&format!("/api/v1/images/{id}/find"), &json!({"phrases": ["bus"]}));
    assert!(find.error(400).contains("SAM 3"));
    let everything = json!({"points_per_side": 500});
    let everything = server.post(&format!("/api/v1/images/{id}/everything"), &everything);
    assert!(everything.error(400).contains("at most 64"));
    assert!(server.send("POST", "/api/v1/images", &[], b"no picture").error(400).contains("text"));
    assert!(server.send("POST", "/api/v1/images", &[], b"").error(400).contains("empty"));
    let unknown = server.send("POST", "/api/v1/images?model=x", &[], STILL_LIFE);
    assert!(unknown.error(404).contains("built-in"));
    assert_eq!(server.get("/api/v1/nothing").status, 404);
    assert_eq!(server.get("/api/v1/images").status, 405);
    assert_eq!(server.get("/app/..%2f..%2fCargo.toml").status, 404);
}

#[test]
fn the_server_describes_itself() {
    let server = Running::start();
    assert_eq!(server.get("/health").json(200)["status"], "UP");
    assert_eq!(server.get("/health").json(200)["models_loaded"], 0, "nothing is loaded for health");
    server.add_still_life();
    let info = server.get("/api/v1/info").json(200);
    assert_eq!(info["pictures"], 1);
    let bytes = info["library_bytes"].as_u64().unwrap();
    assert!(bytes > 640 * 480 * 3, "the features count: {bytes}");
    assert!(info["models"][0]["weight_bytes"].as_u64().unwrap() > 0);
    let models = server.get("/api/v1/models").json(200);
    assert_eq!(
        (&models["models"][0]["id"], &models["models"][0]["loaded"]),
        (&json!("built-in"), &json!(true))
    );
    let metrics = String::from_utf8(server.get("/metrics").body).unwrap();
    assert!(
        metrics.contains("cutout_requests_total{route=\"/api/v1/images\",status=\"200\"} 1"),
        "{metrics}"
    );
    assert!(metrics.contains("cutout_pictures 1\n"), "{metrics}");
    // Every path of the description exists with its method.
    let description = server.get("/api/v1/openapi.json").json(200);
    for (path, methods) in description["paths"].as_object().unwrap() {
        for method in methods.as_object().unwrap().keys() {
            let path = path.replace("{id}", "x").replace("{object}", "1").replace("{frame}", "1");
            let answer = server.send(&method.to_uppercase(), &path, &[], b"{}");
            assert_ne!(answer.status, 405, "{method} {path}");
            let message = String::from_utf8_lossy(&answer.body).into_owned();
            assert!(!message.contains("there is nothing at"), "{method} {path}");
        }
    }
}

#[test]
fn the_page_is_served_with_strict_headers() {
    let server = Running::start();
    let page = server.send("GET", "/", &["accept: text/html,*/*"], b"");
    assert_eq!((page.status, page.header("content-type")), (200, Some("text/html; charset=utf-8")));
    let policy = page.header("content-security-policy").unwrap();
    assert!(policy.contains("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
    let text = String::from_utf8(page.body).unwrap();
    // Every file that the page names exists; nothing comes from elsewhere.
    assert!(!text.contains("http://") && !text.contains("https://"));
    for name in text.split("\"/app/").skip(1).map(|rest| rest.split('"').next().unwrap()) {
        let file = server.get(&format!("/app/{name}"));
        assert!(file.status == 200 && !file.body.is_empty(), "{name}");
        let tag = format!("if-none-match: {}", file.header("etag").unwrap());
        assert_eq!(server.send("GET", &format!("/app/{name}"), &[&tag], b"").status, 304);
    }
    // Programs that look for a health check at the root find it.
    let root = server.send("GET", "/", &["accept: */*"], b"");
    assert_eq!((root.status, root.header("location")), (307, Some("/health")));
}
