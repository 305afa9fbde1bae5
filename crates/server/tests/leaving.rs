//! Clients that leave while the model works on one step of their request: their place is free, and the next step is not begun. The model runs
//! behind a gate, so that a step lasts as long as a test wants; runs of programs are counted, time is not.

use std::io::Write;
use std::net::TcpStream;
use std::ops::Deref;
use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use cutout_parallel::Pool;
use cutout_sam::{Profile, Sam, builtin_checkpoint, device};
use cutout_server::{Limits, ModelSource};
use cutout_testing::{Gate, Gated};
use serde_json::{Value, json};

use crate::support::clips::{BALL, Events, ball_frames, zipped};
use crate::support::{Answer, Running, STILL_LIFE, read_answer};

/// Longest wait. A busy machine is slow; a defect waits for ever.
const PATIENCE: Duration = Duration::from_secs(120);
/// Runs of `everything` with 64 points along a side, at least: 64 points are a batch.
const BATCHES: usize = 64;

/// A server whose model runs behind a gate. It opens when the test ends, so that the server can stop.
struct Slow {
    gate: Arc<Gate>,
    server: Running,
}

impl Drop for Slow {
    fn drop(&mut self) {
        self.gate.open();
    }
}

impl Deref for Slow {
    type Target = Running;

    fn deref(&self) -> &Running {
        &self.server
    }
}

/// A request that was sent, and is not answered yet.
struct Sent(TcpStream);

impl Sent {
    fn answer(mut self) -> Answer {
        read_answer(&mut self.0).unwrap()
    }
}

impl Slow {
    fn start(change: impl FnOnce(&mut Limits)) -> Self {
        let gate = Arc::new(Gate::default());
        let pool = Arc::new(Pool::new(2));
        let backend = device::backends(2).swap_remove(0);
        let backend = Arc::new(Gated::new(backend, Arc::clone(&gate)));
        let sam = Sam::on(&builtin_checkpoint().unwrap(), Profile::default(), backend, pool);
        let sam = sam.unwrap();
        let server = Running::start_with(|options| {
            options.models = vec![ModelSource::built_in(move || Ok(sam.clone()))];
            change(&mut options.limits);
        });
        Slow { gate, server }
    }

    /// Sends a request and does not wait for its answer.
    fn begin(&self, path: &str, body: &[u8]) -> Sent {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let length = body.len();
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).unwrap();
        stream.write_all(body).unwrap();
        Sent(stream)
    }

    fn counter(&self, name: &str) -> u64 {
        let text = String::from_utf8(self.get("/metrics").body).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("no {name} in {text}")).parse().unwrap()
    }

    /// Waits until this many requests wait for the model.
    fn wait_for_queue(&self, jobs: u64) {
        wait_until(&format!("{jobs} jobs wait"), || self.counter("cutout_queue_jobs") == jobs);
    }

    /// Waits until the server has noticed that this many clients left.
    fn wait_for_left(&self, jobs: u64) {
        wait_until(&format!("{jobs} left"), || self.counter("cutout_jobs_left_total") == jobs);
    }

    /// Clicks on a picture, and returns how many programs that runs.
    fn click(&self, id: &str) -> usize {
        let before = self.gate.runs();
        let click = json!({"points": [[200, 280, 1]]});
        assert_eq!(self.post(&format!("/api/v1/images/{id}/segment"), &click).status, 200);
        self.gate.runs() - before
    }

    fn clip(&self, id: &str) -> Value {
        self.get(&format!("/api/v1/videos/{id}")).json(200)
    }
}

fn wait_until(what: &str, is_true: impl Fn() -> bool) {
    let start = Instant::now();
    while !is_true() {
        assert!(start.elapsed() < PATIENCE, "not true: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The picture of the examples with a byte behind its end, which makes it another one.
fn other_picture(byte: u8) -> Vec<u8> {
    [STILL_LIFE, &[byte]].concat()
}

#[test]
fn a_client_that_leaves_during_the_encoder_frees_its_place() {
    let server = Slow::start(|limits| limits.queue = 1);
    server.gate.hold_after(0);
    // This request encodes a picture and then answers a click.
    let click = json!({"image": {"type": "base64", "value": STANDARD.encode(STILL_LIFE)},
        "prompts": [{"points": [{"x": 200, "y": 280, "positive": true}]}], "format": "rle"});
    let encoding = server.begin("/sam2/segment_image", click.to_string().as_bytes());
    server.gate.wait_until_held();
    let waiting = server.begin("/api/v1/images", &other_picture(1));
    server.wait_for_queue(1);
    let refused = server.send("POST", "/api/v1/images", &[], &other_picture(2));
    assert_eq!(refused.status, 503, "the one place is taken");
    drop(waiting);
    server.wait_for_queue(0);
    server.wait_for_left(1);
    let next = server.begin("/api/v1/images", &other_picture(3));
    server.wait_for_queue(1);
    drop(encoding);
    server.wait_for_left(2);
    server.gate.open();
    assert_eq!(next.answer().status, 200);
    // The pictures of the first client and of the last. Neither was the click answered nor the picture that waited encoded.
    assert_eq!(server.gate.runs(), 2);
    // What was computed is kept: the same picture needs no encoder.
    assert_eq!(server.send("POST", "/api/v1/images", &[], STILL_LIFE).json(200)["embed_ms"], 0.0);
    assert_eq!(server.gate.runs(), 2);
}

#[test]
fn everything_stops_at_the_next_batch_when_its_client_leaves() {
    let server = Slow::start(|_| ());
    let id = server.add_still_life();
    server.click(&id);
    let of_a_click = server.click(&id);
    let path = format!("/api/v1/images/{id}/everything");
    let all = json!({"points_per_side": 64, "pred_iou_thresh": 0.0}).to_string();
    server.gate.hold_after(2);
    let searching = server.begin(&path, all.as_bytes());
    server.gate.wait_until_held();
    let held = server.gate.runs();
    let click = json!({"points": [[200, 280, 1]]}).to_string();
    let click = server.begin(&format!("/api/v1/images/{id}/segment"), click.as_bytes());
    server.wait_for_queue(1);
    drop(searching);
    server.wait_for_left(1);
    server.gate.open();
    assert_eq!(click.answer().status, 200);
    assert_eq!(server.post(&path, &json!({"points_per_side": 1})).status, 200);
    let of_one_point = {
        let before = server.gate.runs();
        assert_eq!(server.post(&path, &json!({"points_per_side": 1})).status, 200);
        server.gate.runs() - before
    };
    assert_eq!(server.gate.runs(), held + of_a_click + 2 * of_one_point);
}

#[test]
fn tracking_stops_at_the_next_frame_when_nobody_listens() {
    let server = Slow::start(|_| ());
    let picture = server.add_still_life();
    let clip = zipped(&ball_frames()[..8]);
    let added = server.send("POST", "/api/v1/videos", &[], &clip).json(200);
    let id = added["video_id"].as_str().unwrap();
    let path = |what: &str| format!("/api/v1/videos/{id}/{what}");
    let click = json!({"frame": 0, "object": 1, "points": [[62, 150, 1]]});
    server.post(&path("prompt"), &click).json(200);
    let masked = || server.clip(id)["masked_frames"].as_array().unwrap().len();
    server.gate.hold_after(7);
    let events = Events::ask(&server, &path("track"), &json!({}));
    server.gate.wait_until_held();
    let before = masked();
    assert!((2..6).contains(&before), "{before} frames are tracked");
    drop(events);
    // The clip is free although the step is still under way.
    wait_until("the run ended", || server.clip(id)["tracking"] == false);
    server.wait_for_left(1);
    server.gate.open();
    // Its turn comes when the step has ended.
    server.click(&picture);
    assert_eq!(masked(), before + 1, "the frame that was under way, and no other");
    // The next run goes on where that one stopped.
    let rest = Events::ask(&server, &path("track"), &json!({"start": before}));
    assert_eq!(rest.last().unwrap().name, "done");
    assert_eq!(masked(), added["frames"].as_u64().unwrap() as usize);
}

#[test]
fn the_newest_preview_of_a_clip_takes_the_place_of_older_ones() {
    let server = Slow::start(|_| ());
    let added = server.send("POST", "/api/v1/videos", &[], BALL).json(200);
    let path = format!("/api/v1/videos/{}/prompt", added["video_id"].as_str().unwrap());
    let preview = |sequence: u64| {
        let body = json!({"frame": sequence, "object": 1, "points": [[62, 150, 1]],
            "hover": {"client": "a", "sequence": sequence}});
        server.begin(&path, body.to_string().as_bytes())
    };
    server.gate.hold_after(0);
    let first = preview(1);
    server.gate.wait_until_held();
    let old = preview(2);
    server.wait_for_queue(1);
    let new = preview(3);
    assert_eq!(old.answer().json(409)["error"]["code"], "stale");
    // One that runs is answered; frame 2 is never encoded.
    server.gate.open();
    assert_eq!((first.answer().status, new.answer().status), (200, 200));
    let of_two = server.gate.runs();
    let before = server.gate.runs();
    assert_eq!(preview(4).answer().status, 200);
    assert_eq!(of_two, 2 * (server.gate.runs() - before));
}

#[test]
fn prompts_that_are_given_again_stop_between_frames() {
    let server = Slow::start(|_| ());
    let picture = server.add_still_life();
    let added = server.send("POST", "/api/v1/videos", &[], BALL).json(200);
    let id = added["video_id"].as_str().unwrap();
    let path = format!("/api/v1/videos/{id}/prompt");
    let mark = |frame: usize, anew: bool| json!({"frame": frame, "object": 1, "points": [[62, 150, 1]], "anew": anew});
    for frame in [0, 2, 4, 6] {
        server.post(&path, &mark(frame, false)).json(200);
    }
    let prompts = server.clip(id)["prompts"].clone();
    server.click(&picture);
    let of_a_click = server.click(&picture);
    let before = server.gate.runs();
    server.post(&path, &mark(6, true)).json(200);
    let of_all = server.gate.runs() - before;
    let before = server.gate.runs();
    server.gate.hold_after(0);
    let other = json!({"frame": 6, "object": 1, "points": [[9, 9, 1]], "anew": true}).to_string();
    let leaving = server.begin(&path, other.as_bytes());
    server.gate.wait_until_held();
    drop(leaving);
    server.wait_for_left(1);
    server.gate.open();
    // Its turn comes when the frame under way has ended.
    server.click(&picture);
    let of_some = server.gate.runs() - before - of_a_click;
    assert!(of_some <= of_all / 3, "{of_some} runs of {of_all}: one frame of four");
    assert_eq!(server.clip(id)["prompts"], prompts, "without an answer nothing changed");
    let again = server.post(&path, &mark(6, true)).json(200);
    assert!(again["mask"]["area"].as_u64().unwrap() > 0);
}

#[test]
fn work_ends_when_the_server_stops() {
    let mut server = Slow::start(|limits| limits.stop_time = Duration::ZERO);
    let id = server.add_still_life();
    let all = json!({"points_per_side": 64, "pred_iou_thresh": 0.0}).to_string();
    server.gate.hold_after(2);
    let _searching = server.begin(&format!("/api/v1/images/{id}/everything"), all.as_bytes());
    server.gate.wait_until_held();
    let (gate, address) = (Arc::clone(&server.gate), server.address);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            wait_until("the server listens no more", || TcpStream::connect(address).is_err());
            gate.open();
        });
        server.server.stop();
    });
    assert!(gate.runs() < BATCHES, "{} batches were computed", gate.runs());
}
