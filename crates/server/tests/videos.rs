//! Clips over HTTP: frames, prompts, tracking as events, files, and what is refused.

use std::time::{Duration, Instant};

use cutout_files::TemporaryFolder;
use cutout_imaging::{DecodeLimits, Image, Rle, Size, decode, encode_image};
use cutout_sam::{Direction, History, Prompt, Sam, TrackOptions, TrackedFrame, Tracker};
use cutout_server::Limits;
use cutout_video::{OpenOptions, from_reader};
use serde_json::{Value, json};

use crate::support::clips::{BALL, Event, Events, ball_frames, form, zipped};
use crate::support::{Answer, Running};

/// On the ball of the first frame.
const ON_BALL: [i64; 3] = [62, 150, 1];

fn add(server: &Running, headers: &[&str], body: &[u8]) -> Value {
    server.send("POST", "/api/v1/videos", headers, body).json(200)
}

fn id_of(clip: &Value) -> String {
    clip["video_id"].as_str().unwrap().to_owned()
}

fn path(id: &str, what: &str) -> String {
    format!("/api/v1/videos/{id}/{what}")
}

fn prompt(server: &Running, id: &str, body: Value) -> Value {
    server.post(&path(id, "prompt"), &body).json(200)
}

fn rle(mask: &Value) -> Rle {
    let side = |index: usize| mask["rle"]["size"][index].as_u64().unwrap() as usize;
    Rle::from_coco_string(Size::new(side(1), side(0)), mask["rle"]["counts"].as_str().unwrap())
        .unwrap()
}

fn number(value: &Value) -> usize {
    value.as_u64().unwrap() as usize
}

/// The frames of a run that ends well, with what each holds.
fn track(server: &Running, id: &str, body: Value) -> Vec<Value> {
    let events: Vec<Event> = Events::ask(server, &path(id, "track"), &body).collect();
    let count = events.len() - 2;
    assert_eq!(events[0].name, "started");
    assert_eq!(number(&events[0].data["frames"]), count);
    assert_eq!(events[count + 1].name, "done", "{:?}", events[count + 1]);
    let frames = &events[1..=count];
    for (index, event) in frames.iter().enumerate() {
        assert_eq!(event.name, "frame");
        assert_eq!(number(&event.data["done"]), index + 1);
    }
    frames.iter().map(|event| event.data.clone()).collect()
}

/// What the library tracks.
struct Expected {
    tracker: Tracker,
    frames: Vec<Image>,
    /// Where the tracker keeps what is out of its reach.
    _history: TemporaryFolder,
}

impl Expected {
    fn new(frames: Vec<Image>) -> Self {
        let folder = TemporaryFolder::create().unwrap();
        let history = History::Disk(folder.path().to_owned());
        let options =
            TrackOptions { length: Some(frames.len()), history, ..TrackOptions::default() };
        let tracker = Sam::builtin().unwrap().track(options).unwrap();
        Expected { tracker, frames, _history: folder }
    }

    fn prompt(&mut self, frame: usize, object: u32, prompt: &Prompt) -> Rle {
        self.tracker.visit(frame, &self.frames[frame]).unwrap();
        self.tracker.prompt(frame, object, prompt).unwrap().segment.rle().unwrap()
    }

    fn push(&mut self, frame: usize, direction: Direction) -> TrackedFrame {
        self.tracker.push_at(frame, &self.frames[frame], direction).unwrap()
    }

    #[track_caller]
    fn assert_same(&mut self, found: &Value, frame: usize, direction: Direction) {
        assert_eq!(number(&found["frame"]), frame);
        let expected = self.push(frame, direction);
        let masks = found["masks"].as_array().unwrap();
        assert_eq!(masks.len(), expected.objects.len());
        for (mask, object) in masks.iter().zip(&expected.objects) {
            assert_eq!(number(&mask["object"]), object.id as usize);
            assert_eq!(rle(mask), object.segment.rle().unwrap(), "frame {frame}");
        }
    }
}

#[test]
fn tracks_over_http_are_those_of_the_library() {
    let server = Running::start();
    let mut frames = ball_frames();
    let clip = add(&server, &[], BALL);
    assert_eq!(number(&clip["frames"]), frames.len());
    assert_eq!((number(&clip["width"]), number(&clip["height"])), (320, 240));
    assert!((clip["frame_rate"].as_f64().unwrap() - 12.5).abs() < 1e-6);
    frames.truncate(9);
    let count = frames.len();
    let id = id_of(&add(&server, &[], &zipped(&frames)));

    // A click on a frame in the middle, and a box on another object of another frame.
    let (first, second) = (2, 4);
    let mut expected = Expected::new(frames);
    let click = json!({"frame": first, "object": 1, "points": [ON_BALL]});
    let answer = prompt(&server, &id, click);
    let mask = expected.prompt(first, 1, &Prompt::point(62, 150));
    assert_eq!(rle(&answer["mask"]), mask);
    let boxed = json!({"frame": second, "object": 7, "box": [200, 120, 300, 200]});
    let answer = prompt(&server, &id, boxed);
    let mask = expected.prompt(second, 7, &Prompt::rect(200, 120, 300, 200));
    assert_eq!(rle(&answer["mask"]), mask);
    // More points refine the mask.
    let more = json!({"frame": second, "object": 7, "box": [200, 120, 300, 200], "points": [[210, 130, 0]]});
    let answer = prompt(&server, &id, more);
    let mask = expected.prompt(second, 7, &Prompt::rect(200, 120, 300, 200).not(210, 130));
    assert_eq!(rle(&answer["mask"]), mask);

    let both = track(&server, &id, json!({"direction": "both"}));
    assert_eq!(both.len(), count);
    let order: Vec<usize> = both.iter().map(|frame| number(&frame["frame"])).collect();
    let wanted: Vec<usize> = (first..count).chain((0..first).rev()).collect();
    assert_eq!(order, wanted);
    for (index, found) in both.iter().enumerate() {
        let is_forward = index < count - first;
        let direction = if is_forward { Direction::Forward } else { Direction::Backward };
        expected.assert_same(found, wanted[index], direction);
    }
    let state = server.get(&format!("/api/v1/videos/{id}")).json(200);
    assert_eq!(state["masked_frames"].as_array().unwrap().len(), count);
    assert_eq!(state["prompts"].as_array().unwrap().len(), 2);

    // A correction of a tracked frame, and from there on.
    let fix = json!({"frame": 6, "object": 1, "points": [[10, 10, 0]]});
    let answer = prompt(&server, &id, fix);
    let mask = expected.prompt(6, 1, &Prompt::default().not(10, 10));
    assert_eq!(rle(&answer["mask"]), mask);
    let again = track(&server, &id, json!({"start": 6, "max_frames": 2}));
    assert_eq!(again.len(), 2);
    for (index, found) in again.iter().enumerate() {
        expected.assert_same(found, 6 + index, Direction::Forward);
    }
    let back = track(&server, &id, json!({"direction": "backward", "start": 1}));
    assert_eq!(back.iter().map(|frame| number(&frame["frame"])).collect::<Vec<_>>(), [1, 0]);
}

#[test]
fn objects_and_prompts_are_taken_back() {
    let server = Running::start();
    let id = id_of(&add(&server, &[], BALL));
    let click = json!({"frame": 0, "object": 1, "points": [ON_BALL]});
    let first = prompt(&server, &id, click.clone());
    prompt(&server, &id, json!({"frame": 0, "object": 1, "points": [ON_BALL, [300, 20, 0]]}));
    // Anew, the answers in between play no part.
    let mut anew = click;
    anew["anew"] = json!(true);
    assert_eq!(rle(&prompt(&server, &id, anew)["mask"]), rle(&first["mask"]));
    prompt(&server, &id, json!({"frame": 2, "object": 1, "points": [ON_BALL]}));
    prompt(&server, &id, json!({"frame": 2, "object": 2, "box": [200, 120, 300, 200]}));
    let remove = |what: &str| server.send("DELETE", &path(&id, what), &[], b"");
    let left = || {
        let state = server.get(&format!("/api/v1/videos/{id}")).json(200);
        let marks = |mark: &Value| (number(&mark["frame"]), number(&mark["object"]));
        state["prompts"].as_array().unwrap().iter().map(marks).collect::<Vec<_>>()
    };
    assert_eq!(left(), [(0, 1), (2, 1), (2, 2)]);
    assert_eq!(remove("objects/1/frames/2").status, 204);
    assert_eq!(left(), [(0, 1), (2, 2)]);
    assert!(remove("objects/1/frames/2").error(404).contains("no prompt"));
    assert_eq!(remove("objects/2").status, 204);
    assert_eq!(left(), [(0, 1)]);
    assert!(remove("objects/2").error(404).contains("no object 2"));
    let frames = track(&server, &id, json!({"max_frames": 2}));
    assert_eq!(frames[1]["masks"].as_array().unwrap().len(), 1);
    // Its last prompt was the object.
    assert_eq!(remove("objects/1/frames/0").status, 204);
    let none = server.post(&path(&id, "track"), &json!({}));
    assert!(none.error(400).contains("no prompt yet"));
    assert_eq!(server.send("DELETE", &format!("/api/v1/videos/{id}"), &[], b"").status, 204);
    assert!(server.get(&format!("/api/v1/videos/{id}")).error(404).contains("send it again"));
}

#[test]
fn a_preview_is_the_mask_of_the_click_and_keeps_nothing() {
    let server = Running::start();
    let id = id_of(&add(&server, &[], BALL));
    let preview = |frame: usize, object: u32, sequence: u64| {
        json!({"frame": frame, "object": object, "points": [ON_BALL],
        "hover": {"client": "a", "sequence": sequence}})
    };
    let shown = prompt(&server, &id, preview(0, 1, 1));
    prompt(&server, &id, preview(4, 1, 2));
    let state = server.get(&format!("/api/v1/videos/{id}")).json(200);
    assert_eq!((&state["prompts"], &state["masked_frames"]), (&json!([]), &json!([])));
    assert!(server.post(&path(&id, "track"), &json!({})).error(400).contains("no prompt yet"));
    let mut expected = Expected::new(ball_frames());
    let mask = expected.prompt(0, 1, &Prompt::point(62, 150));
    assert_eq!(rle(&shown["mask"]), mask);
    let click = json!({"frame": 0, "object": 1, "points": [ON_BALL]});
    assert_eq!(rle(&prompt(&server, &id, click)["mask"]), mask);
    // Between the marks and the run, on other frames too.
    prompt(&server, &id, preview(7, 2, 3));
    for (frame, found) in track(&server, &id, json!({"max_frames": 3})).iter().enumerate() {
        expected.assert_same(found, frame, Direction::Forward);
    }
    let refused = |body: Value| server.post(&path(&id, "prompt"), &body).error(400);
    assert!(refused(preview(24, 1, 4)).contains("no frame 24"));
    assert!(refused(preview(0, 256, 5)).contains("1 to 255"));
    let mut anew = preview(0, 1, 6);
    anew["anew"] = json!(true);
    assert!(refused(anew).contains("hover"));
}

#[test]
fn clips_come_as_files_archives_and_forms() {
    let server = Running::start();
    let frames = &ball_frames()[..3];
    let pictures: Vec<Vec<u8>> = frames.iter().map(|frame| encode_image(frame).unwrap()).collect();
    let (kind, several) = form(&pictures);
    let (_, one) = form(&[BALL.to_vec()]);
    let added = [
        (add(&server, &[], &zipped(frames)), 3),
        (add(&server, &[&kind], &several), 3),
        (add(&server, &[&kind], &one), ball_frames().len()),
        (add(&server, &[], &pictures[0]), 1),
    ];
    for (clip, count) in &added {
        assert_eq!(number(&clip["frames"]), *count);
        let id = id_of(clip);
        let frame = server.get(&path(&id, "frames/0"));
        assert_eq!((frame.status, frame.header("content-type")), (200, Some("image/jpeg")));
        assert!(frame.header("cache-control").unwrap().contains("immutable"));
        let shown = decode(&frame.body, "", &DecodeLimits::default()).unwrap();
        let sum = |image: &Image| image.as_rgb().iter().map(|value| u64::from(*value)).sum::<u64>();
        let (shown, sent) = (sum(&shown) as f64, sum(&frames[0]) as f64);
        assert!((shown / sent - 1.0).abs() < 0.02, "{shown} for {sent}");
        let beyond = server.get(&path(&id, &format!("frames/{count}")));
        assert!(beyond.error(400).contains("no frame"));
    }
    assert_eq!(server.get("/api/v1/info").json(200)["clips"], 4);
    let wrong = |headers: &[&str], body: &[u8]| {
        server.send("POST", "/api/v1/videos", headers, body).error(400)
    };
    assert!(wrong(&[], b"").contains("empty"));
    let message = wrong(&[], b"neither picture nor video");
    assert!(message.contains("ffmpeg") && message.starts_with("the clip:"), "{message}");
    assert!(wrong(&[&kind], b"--limit\r\n").contains("the form"));
    assert!(wrong(&[&kind], &several[..several.len() / 2]).contains("inside a part"));
    let mut other = pictures.clone();
    other.push(encode_image(&Image::filled(Size::new(5, 5), [1; 3]).unwrap()).unwrap());
    assert!(wrong(&[&kind], &form(&other).1).contains("frame 3 has"));
    let unknown = server.send("POST", "/api/v1/videos?model=x", &[], BALL);
    assert!(unknown.error(404).contains("built-in"));
}

#[test]
fn clips_and_pictures_of_several_megabytes_are_read() {
    let server = Running::start();
    let noise = |seed: u64| {
        let mut state = seed;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 56) as u8
        };
        Image::from_rgb(Size::new(640, 480), (0..640 * 480 * 3).map(|_| next()).collect()).unwrap()
    };
    let file = zipped(&[noise(1), noise(2), noise(3), noise(4)]);
    assert!(file.len() > 3 << 20, "{}", file.len());
    assert_eq!(number(&add(&server, &[], &file)["frames"]), 4);
    // Bytes behind the end of a picture belong to no picture, and are allowed.
    let picture = [crate::support::STILL_LIFE, &vec![0; 5 << 20]].concat();
    assert_eq!(server.send("POST", "/api/v1/images", &[], &picture).status, 200);
}

#[test]
fn files_hold_the_masks_of_all_frames() {
    let server = Running::start();
    let frames = &ball_frames()[..4];
    let id = id_of(&add(&server, &[], &zipped(frames)));
    let export = |format: &str| server.post(&path(&id, "export"), &json!({"format": format}));
    assert!(export("labels").error(400).contains("no masks"));
    prompt(&server, &id, json!({"frame": 0, "object": 2, "points": [ON_BALL]}));
    let tracked = track(&server, &id, json!({}));
    let file = |format: &str, kind: &str| -> Answer {
        let file = export(format);
        assert_eq!((file.status, file.header("content-type")), (200, Some(kind)), "{format}");
        file
    };
    let read = |file: &Answer| -> Vec<Image> {
        let bytes = std::io::Cursor::new(file.body.clone());
        let source = from_reader(bytes, "file", &OpenOptions::default()).unwrap();
        source.collect::<Result<_, _>>().unwrap()
    };
    let labels = file("labels", "application/zip");
    assert!(labels.header("content-disposition").unwrap().contains("labels.zip"));
    for (image, found) in read(&labels).iter().zip(&tracked) {
        let set = image.as_rgb().chunks(3).filter(|pixel| *pixel != [0, 0, 0]).count();
        assert_eq!(set, number(&found["masks"][0]["area"]));
    }
    let lines = String::from_utf8(file("jsonl", "application/jsonl").body).unwrap();
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 4);
    for (line, found) in lines.iter().zip(&tracked) {
        assert_eq!(line["frame"], found["frame"]);
        assert_eq!(line["objects"][0]["id"], 2);
        assert_eq!(line["objects"][0]["segmentation"], found["masks"][0]["rle"]);
    }
    let whole: Value = file("vis", "application/json").json(200);
    assert_eq!(whole["annotations"][0]["segmentations"].as_array().unwrap().len(), 4);
    let boxes = String::from_utf8(file("mot", "text/plain").body).unwrap();
    assert!(boxes.lines().count() == 4 && boxes.starts_with("1,2,"), "{boxes}");
    assert_eq!(read(&file("gif", "image/gif")).len(), 4);
    let drawn = read(&file("overlay", "application/zip"));
    assert!(drawn.len() == 4 && drawn[0] != frames[0]);
    assert!(export("mp4").error(400).contains("no ffmpeg"));
}

#[test]
fn tracking_ends_when_it_is_cancelled_or_nobody_listens() {
    let server = Running::start();
    let id = id_of(&add(&server, &[], BALL));
    prompt(&server, &id, json!({"frame": 0, "object": 1, "points": [ON_BALL]}));
    let start = || {
        let mut events = Events::ask(&server, &path(&id, "track"), &json!({}));
        assert_eq!(events.status, 200);
        assert_eq!(events.next().unwrap().name, "started");
        assert_eq!(events.next().unwrap().name, "frame");
        events
    };
    let events = start();
    // While it runs the clip takes neither prompts nor another run, and says so.
    let other = Events::ask(&server, &path(&id, "track"), &json!({}));
    assert_eq!(other.status, 409);
    assert!(other.rest().contains("conflict"));
    let click = json!({"frame": 0, "object": 1, "points": [ON_BALL]});
    assert!(server.post(&path(&id, "prompt"), &click).error(409).contains("cancel"));
    assert_eq!(server.get(&format!("/api/v1/videos/{id}")).json(200)["tracking"], true);
    // Pictures are answered in between.
    server.add_still_life();
    let cancelled = server.post(&path(&id, "cancel"), &json!({})).json(200);
    assert_eq!(cancelled["cancelled"], true);
    let rest: Vec<Event> = events.collect();
    let last = rest.last().unwrap();
    assert_eq!(last.name, "cancelled", "{last:?}");
    assert!(number(&last.data["frames"]) < ball_frames().len());
    assert_eq!(server.post(&path(&id, "cancel"), &json!({})).json(200)["cancelled"], false);

    drop(start());
    let waited = Instant::now();
    while server.get(&format!("/api/v1/videos/{id}")).json(200)["tracking"] == true {
        assert!(waited.elapsed() < Duration::from_secs(60), "the run goes on without a listener");
        std::thread::sleep(Duration::from_millis(20));
    }
    // Forgetting a clip ends its run.
    let events = start();
    assert_eq!(server.send("DELETE", &format!("/api/v1/videos/{id}"), &[], b"").status, 204);
    assert_eq!(events.last().unwrap().name, "cancelled");
}

#[test]
fn clips_are_bounded() {
    let server = Running::start_with(|options| {
        options.limits = Limits {
            clip_frames: 5,
            clip_bytes: 5 * 320 * 240 * 3,
            clip_objects: 2,
            clips: 2,
            body_bytes: 1000,
            clip_body_bytes: 2_000_000,
            ..options.limits
        };
    });
    let frames = ball_frames();
    let refused = |body: &[u8]| server.send("POST", "/api/v1/videos", &[], body).error(400);
    assert!(refused(&zipped(&frames[..6])).contains("limit of 5 frames"));
    assert!(refused(BALL).contains("limit of 5 frames"));
    let pictures: Vec<Vec<u8>> =
        frames[..6].iter().map(|frame| encode_image(frame).unwrap()).collect();
    let (kind, body) = form(&pictures);
    let many = server.send("POST", "/api/v1/videos", &[&kind], &body).error(400);
    assert!(many.contains("more than 5 files"));
    let large = Image::filled(Size::new(640, 480), [9; 3]).unwrap();
    assert!(refused(&zipped(&[large.clone(), large])).contains("bytes"));
    assert_eq!(server.send("POST", "/api/v1/videos", &[], &vec![0; 2_000_001]).status, 413);
    // The clip that was not used for the longest time makes room.
    let ids: Vec<String> =
        (1..=3).map(|count| id_of(&add(&server, &[], &zipped(&frames[..count])))).collect();
    assert_eq!(server.get(&format!("/api/v1/videos/{}", ids[0])).status, 404);
    assert_eq!(server.get(&format!("/api/v1/videos/{}", ids[1])).status, 200);
    let ask = |body: Value| server.post(&path(&ids[2], "prompt"), &body).error(400);
    let click = |object: u32| json!({"frame": 0, "object": object, "points": [ON_BALL]});
    assert!(ask(click(0)).contains("1 to 255") && ask(click(256)).contains("1 to 255"));
    for object in [3, 4] {
        prompt(&server, &ids[2], click(object));
    }
    assert!(ask(click(5)).contains("at most 2 objects"));
    for (body, words) in [
        (json!({"frame": 3, "object": 3, "points": [ON_BALL]}), "no frame 3"),
        (json!({"frame": 0, "object": 3}), "prompt"),
        (json!({"frame": 0, "object": 3, "points": [[400, 10, 1]], "anew": true}), "outside"),
        (json!({"frame": -1, "object": 3}), "JSON"),
    ] {
        let message = ask(body.clone());
        assert!(message.contains(words), "{body}: {message}");
    }
    // What was refused changed nothing.
    let state = server.get(&format!("/api/v1/videos/{}", ids[2])).json(200);
    assert_eq!(state["prompts"].as_array().unwrap().len(), 2);
    let wrong = server.post(&path(&ids[2], "track"), &json!({"start": 9}));
    assert!(wrong.error(400).contains("no frame 9"));
    let phrases = Events::ask(&server, &path(&ids[2], "track"), &json!({"phrases": ["ball"]}));
    assert_eq!(phrases.status, 400, "the built-in model finds no phrases");
}

#[test]
fn clips_that_nobody_uses_are_dropped() {
    let server = Running::start_with(|options| {
        options.limits = Limits { clip_idle: Duration::ZERO, ..options.limits };
    });
    let first = id_of(&add(&server, &[], &zipped(&ball_frames()[..2])));
    // Adding a clip looks for idle ones.
    let second = id_of(&add(&server, &[], &zipped(&ball_frames()[..2])));
    assert_eq!(server.get(&format!("/api/v1/videos/{first}")).status, 404);
    assert_eq!(server.get(&format!("/api/v1/videos/{second}")).status, 200);
    assert_eq!(server.get("/api/v1/info").json(200)["clips"], 1);
}
