//! A clip in Chromium: load, mark, track, cancel, correct, files, keys, a small screen.

use serde_json::{Value, json};

use crate::browser::{Page, check_accessibility};
use crate::support::clips::{ball_frames, zipped};
use crate::support::webdriver::keys;

const BALL: (f64, f64) = (62.0, 150.0);
/// Frames of a short clip.
const SHORT: usize = 10;

impl Page {
    fn with_clip(name: &str, width: u32, height: u32) -> Option<Self> {
        let page = Page::open(name, width, height)?;
        page.browser.click("#sample-clip");
        page.wait_clip();
        Some(page)
    }

    /// A page with the first frames of the sample, for tests that track through all of them.
    fn with_short_clip(name: &str) -> Option<Self> {
        let page = Page::open(name, 1280, 800)?;
        page.choose_file("ball.zip", &zipped(&ball_frames()[..SHORT]));
        page.wait_clip();
        Some(page)
    }

    fn wait_clip(&self) {
        self.browser.wait("document.querySelector('#live').textContent.startsWith('Clip ready')");
    }

    /// Position in the window of a position in the clip.
    fn on_clip(&self, (x, y): (f64, f64)) -> [f64; 2] {
        self.place_in([320.0, 240.0], x, y)
    }

    fn live(&self) -> String {
        self.browser
            .evaluate("document.querySelector('#live').textContent")
            .as_str()
            .unwrap()
            .into()
    }

    /// Waits until what a screen reader hears begins with some words.
    fn wait_live(&self, words: &str) {
        let words = json!(words);
        self.browser
            .wait(&format!("document.querySelector('#live').textContent.startsWith({words})"));
    }

    /// The number of the frame that is shown, from 0.
    fn frame(&self) -> u64 {
        let value = self.browser.evaluate("Number(document.querySelector('#scrub').value)");
        value.as_u64().unwrap()
    }

    fn wait_frame(&self, frame: u64) {
        self.browser.wait(&format!("Number(document.querySelector('#scrub').value) === {frame}"));
    }

    fn scrub(&self, frame: u64) {
        let script = "const s = document.querySelector('#scrub'); s.value = arguments[0]; \
                      s.dispatchEvent(new Event('input'));";
        self.browser.script(script, &json!([frame]));
        self.wait_frame(frame);
    }
}

#[test]
fn a_clip_is_marked_tracked_corrected_and_saved() {
    let Some(page) = Page::with_short_clip("clip") else { return };
    let browser = &page.browser;
    assert_eq!(browser.evaluate("document.querySelector('#scrub').max"), "9");
    assert_eq!(browser.evaluate("document.querySelector('#track').disabled"), true);
    // Mark the ball on a frame that is not the first, and track to the end and to the beginning.
    page.scrub(2);
    browser.drag(&[page.on_clip(BALL)]);
    page.wait_objects(1);
    browser.click("[data-way=both]");
    browser.click("#track");
    browser.wait("document.querySelector('#track').textContent === 'Cancel'");
    page.wait_live("Tracked 10 frames");
    assert_eq!(browser.evaluate("document.querySelector('#track').textContent"), "Track");
    for frame in [0, 9] {
        page.scrub(frame);
        page.wait_objects(1);
    }
    // Another object on another frame, a correction, and both taken back.
    page.scrub(5);
    browser.press(&[], &["n"]);
    let corner = |x, y| page.on_clip((x, y));
    browser.drag(&[corner(190.0, 150.0), corner(230.0, 190.0), corner(300.0, 225.0)]);
    browser.wait("document.querySelectorAll('.object').length === 2");
    page.wait_live("Object 2");
    browser.click_holding(keys::SHIFT, page.on_clip((20.0, 20.0)));
    browser.press(&[keys::CONTROL], &["z"]);
    browser.press(&[keys::CONTROL], &["z"]);
    browser.wait("document.querySelectorAll('.object').length === 1");
    browser.press(&[keys::CONTROL, keys::SHIFT], &["z"]);
    browser.wait("document.querySelectorAll('.object').length === 2");
    page.wait_live("Object 2");
    browser.click("[data-clip-format=jsonl]");
    let lines = String::from_utf8(page.downloaded("ball.masks.jsonl")).unwrap();
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), SHORT);
    assert_eq!(lines[5]["objects"].as_array().unwrap().len(), 2);
    browser.click("[data-clip-format=labels]");
    assert!(page.downloaded("ball.labels.zip").starts_with(b"PK"));
    browser.click("[data-clip-format=gif]");
    assert!(page.downloaded("ball.overlay.gif").starts_with(b"GIF89a"));
    // A picture takes the place of the clip.
    browser.script("document.querySelector('#sample').click();", &json!([]));
    page.wait_ready();
    assert_eq!(browser.evaluate("document.querySelector('#timeline').hidden"), true);
    assert_eq!(browser.evaluate("document.querySelectorAll('.object').length"), 0);
    page.expect_no_errors();
}

#[test]
fn what_is_under_the_pointer_lights_up_on_the_frame_that_is_shown() {
    let Some(page) = Page::with_clip("clip-hover", 1280, 800) else { return };
    let browser = &page.browser;
    let (ball, wall) = (page.on_clip(BALL), page.on_clip((300.0, 20.0)));
    let (of_ball, of_wall) = (page.brightness(ball), page.brightness(wall));
    let is_dim = |share: f64| share < 0.8;
    let is_as_before = |share: f64| (share - 1.0).abs() < 0.05;
    // On its way the pointer asks about other places; the last one stays.
    browser.hover(ball);
    page.wait_brightness(wall, of_wall, is_dim);
    page.wait_brightness(ball, of_ball, is_as_before);
    assert_eq!(browser.evaluate("document.querySelectorAll('.object').length"), 0);
    // It belongs to the frame: on the next one there is nothing until the pointer moves.
    browser.press(&[], &[keys::RIGHT]);
    page.wait_frame(1);
    page.wait_brightness(wall, of_wall, is_as_before);
    browser.hover(page.on_clip((BALL.0 + 6.0, BALL.1)));
    page.wait_brightness(wall, of_wall, is_dim);
    // Outside the picture there is nothing.
    browser.hover(page.on_clip((-8.0, 20.0)));
    page.wait_brightness(wall, of_wall, is_as_before);
    // While objects are tracked nobody asks.
    let asked =
        "performance.getEntriesByType('resource').filter(e => e.name.endsWith('/prompt')).length";
    browser.drag(&[page.on_clip((BALL.0 + 6.0, BALL.1))]);
    page.wait_objects(1);
    browser.press(&[], &["n"]);
    let before = browser.evaluate(asked);
    assert!(before.as_u64().unwrap() >= 3, "{before}");
    browser.click("#track");
    browser.wait("document.querySelector('#track').textContent === 'Cancel'");
    browser.hover(ball);
    browser.click("#track");
    page.wait_live("Cancelled after");
    assert_eq!(browser.evaluate(asked), before);
    page.expect_no_errors();
}

#[test]
fn tracking_is_cancelled_and_goes_on() {
    let Some(page) = Page::with_short_clip("cancel") else { return };
    let browser = &page.browser;
    browser.drag(&[page.on_clip(BALL)]);
    page.wait_objects(1);
    browser.click("#track");
    // Frames are shown as they arrive.
    browser.wait("Number(document.querySelector('#scrub').value) >= 2");
    browser.click("#track");
    page.wait_live("Cancelled after");
    browser.wait("document.querySelector('#track').textContent === 'Track'");
    assert!(page.frame() < 9, "{}", page.frame());
    browser.click("#track");
    page.wait_live("Tracked 10 frames");
    assert_eq!(page.frame(), 9);
    // Playing begins again at the end, and stops there.
    let watch = "const play = document.querySelector('#play'); window.labels = []; \
                 new MutationObserver(() => labels.push(play.getAttribute('aria-label'))).observe(play, {attributes: true});";
    browser.script(watch, &json!([]));
    browser.click("#play");
    browser.wait("labels.includes('Pause') && labels.at(-1) === 'Play'");
    assert_eq!(page.frame(), 9);
    page.expect_no_errors();
}

#[test]
fn keys_alone_are_enough_for_a_clip() {
    let Some(page) = Page::open("clip-keys", 1280, 800) else { return };
    let browser = &page.browser;
    page.tab_to("sample-clip");
    browser.press(&[], &[keys::ENTER]);
    page.wait_clip();
    assert_eq!(browser.evaluate("document.activeElement.id"), "canvas");
    browser.press(&[], &[keys::RIGHT]);
    page.wait_frame(1);
    assert!(page.live().starts_with("Frame 2 of 24, 0.08 s"), "{}", page.live());
    browser.press(&[keys::SHIFT], &[keys::RIGHT]);
    page.wait_frame(11);
    browser.press(&[], &[keys::HOME]);
    page.wait_frame(0);
    // Down shows the cross-hair in the middle; arrows move it to the ball, Enter marks it.
    browser.press(&[], &[keys::DOWN]);
    browser.press(
        &[keys::SHIFT],
        &[
            keys::LEFT,
            keys::LEFT,
            keys::LEFT,
            keys::LEFT,
            keys::LEFT,
            keys::LEFT,
            keys::DOWN,
            keys::DOWN,
        ],
    );
    browser.press(&[], &[keys::ENTER]);
    page.wait_objects(1);
    page.wait_live("Object 1");
    browser.press(&[], &["t"]);
    page.wait_live("Tracking");
    browser.wait("Number(document.querySelector('#scrub').value) >= 1");
    browser.press(&[], &[keys::ESCAPE]);
    page.wait_live("Cancelled after");
    // Another Escape puts the cross-hair away, so that arrows are frames again.
    browser.press(&[], &[keys::ESCAPE]);
    browser.press(&[], &[keys::END]);
    page.wait_frame(23);
    browser.press(&[], &[keys::LEFT]);
    page.wait_frame(22);
    browser.press(&[], &[keys::HOME]);
    browser.press(&[], &[" "]);
    browser.wait("document.querySelector('#play').getAttribute('aria-label') === 'Pause'");
    page.tab_to("scrub");
    browser.press(&[], &[keys::HOME]);
    page.wait_frame(0);
    let text = browser.evaluate("document.querySelector('#scrub').getAttribute('aria-valuetext')");
    assert!(text.as_str().unwrap().contains("Object 1"), "{text}");
    page.tab_to("track");
    page.expect_no_errors();
}

#[test]
fn a_clip_fits_a_small_screen() {
    let Some(page) = Page::open("clip-small", 500, 780) else { return };
    let browser = &page.browser;
    // Headless windows are at least 500 wide; the page itself is made narrower.
    browser.script("document.documentElement.style.width = '400px';", &json!([]));
    browser.click("#sample-clip");
    page.wait_clip();
    browser.drag(&[page.on_clip(BALL)]);
    page.wait_objects(1);
    assert_eq!(browser.evaluate("document.body.scrollWidth <= 400"), true, "nothing is cut off");
    let inside = "[...document.querySelectorAll('#timeline button')].every(b => { \
                  const r = b.getBoundingClientRect(); return r.right <= 400 && r.bottom <= innerHeight && r.width > 20; })";
    assert_eq!(browser.evaluate(inside), true);
    let room = browser.evaluate("document.querySelector('#canvas').clientHeight");
    assert!(room.as_f64().unwrap() > 200.0, "{room}");
    page.expect_no_errors();
}

#[test]
fn no_rule_of_accessibility_is_broken_by_a_clip() {
    let Some(page) = Page::open("clip-axe", 1280, 800) else { return };
    let browser = &page.browser;
    page.choose_file("short.zip", &zipped(&ball_frames()[..5]));
    page.wait_clip();
    let Some(()) = check_accessibility(browser, "a clip") else { return };
    browser.drag(&[page.on_clip(BALL)]);
    page.wait_objects(1);
    browser.click("#track");
    browser.wait("document.querySelector('#track').textContent === 'Cancel'");
    check_accessibility(browser, "a clip that is tracked");
    page.wait_live("Tracked");
    check_accessibility(browser, "a clip with masks");
}
