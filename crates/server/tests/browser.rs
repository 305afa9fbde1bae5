//! The page in Chromium: pictures, clicks, boxes, keys, downloads, and what a screen reader finds.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use cutout_testing::skip;
use serde_json::{Value, json};

use crate::support::Running;
use crate::support::webdriver::{Browser, PATIENCE, keys};

/// A page with the sample picture, and the folder of its downloads.
pub(crate) struct Page {
    pub(crate) browser: Browser,
    downloads: PathBuf,
    // Last, so that the browser is closed before the server stops.
    pub(crate) server: Running,
}

impl Page {
    /// A page of a server with the built-in model. `None` where there is no browser.
    pub(crate) fn open(name: &str, width: u32, height: u32) -> Option<Self> {
        Page::of(Running::start, name, width, height)
    }

    /// A page of a server.
    pub(crate) fn of(
        start: impl FnOnce() -> Running,
        name: &str,
        width: u32,
        height: u32,
    ) -> Option<Self> {
        let downloads =
            std::env::temp_dir().join(format!("cutout-page-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&downloads).unwrap();
        let browser = Browser::open(width, height, &downloads)?;
        let server = start();
        browser.go(&format!("http://{}/", server.address));
        browser.wait("document.querySelector('#model').options.length > 0");
        Some(Page { browser, downloads, server })
    }

    fn with_sample(name: &str) -> Option<Self> {
        let page = Page::open(name, 1280, 800)?;
        page.browser.click("#sample");
        page.wait_ready();
        Some(page)
    }

    pub(crate) fn wait_ready(&self) {
        self.browser
            .wait("document.querySelector('#live').textContent.startsWith('Picture ready')");
    }

    /// Position in the window of a position in the sample picture.
    fn place(&self, x: f64, y: f64) -> [f64; 2] {
        self.place_in([640.0, 480.0], x, y)
    }

    /// Position in the window of a position in a picture of this size, which is fitted and in the middle.
    pub(crate) fn place_in(&self, [width, height]: [f64; 2], x: f64, y: f64) -> [f64; 2] {
        let script = "const [w, h] = arguments, c = document.querySelector('#canvas'), r = c.getBoundingClientRect();
            const side = Math.min(28, r.width / 20), room = [r.width - 2 * side, r.height - 108];
            const s = Math.min(room[0] / w, room[1] / h, 4);
            return [r.left + (r.width - w * s) / 2, r.top + 24 + (room[1] - h * s) / 2, s];";
        let found: [f64; 3] =
            serde_json::from_value(self.browser.script(script, &json!([width, height]))).unwrap();
        [found[0] + x * found[2], found[1] + y * found[2]]
    }

    /// How bright the canvas is at a position of the window: the sum of red, green and blue.
    pub(crate) fn brightness(&self, [x, y]: [f64; 2]) -> f64 {
        let script = "const c = document.querySelector('#canvas'), r = c.getBoundingClientRect();
            const [red, green, blue] = c.getContext('2d').getImageData(arguments[0] - r.left, arguments[1] - r.top, 1, 1).data;
            return red + green + blue;";
        self.browser.script(script, &json!([x.round(), y.round()])).as_f64().unwrap()
    }

    /// Waits until the brightness at a position, as a share of an earlier one, is below or above a bound.
    pub(crate) fn wait_brightness(&self, at: [f64; 2], earlier: f64, is_fit: impl Fn(f64) -> bool) {
        let start = Instant::now();
        while !is_fit(self.brightness(at) / earlier) {
            assert!(start.elapsed() < PATIENCE, "{} of {earlier}", self.brightness(at));
            std::thread::sleep(Duration::from_millis(30));
        }
    }

    /// Presses Tab until an element has the focus, as somebody without a pointer gets there.
    pub(crate) fn tab_to(&self, id: &str) {
        let is_there = format!("document.activeElement.id === '{id}'");
        let mut steps = 0;
        while self.browser.evaluate(&is_there) != true {
            self.browser.press(&[], &[keys::TAB]);
            steps += 1;
            assert!(steps < 30, "Tab does not get to {id}");
        }
    }

    /// Waits until the list has this many objects with masks.
    pub(crate) fn wait_objects(&self, count: usize) {
        self.browser.wait(&format!(
            "document.querySelectorAll('.object').length === {count} && \
             [...document.querySelectorAll('.object .facts')].every(e => e.textContent.includes('score'))"
        ));
    }

    fn facts(&self) -> Vec<String> {
        let texts = "[...document.querySelectorAll('.object .facts')].map(e => e.textContent)";
        serde_json::from_value(self.browser.evaluate(texts)).unwrap()
    }

    /// Opens a file as somebody who chooses it.
    pub(crate) fn choose_file(&self, name: &str, bytes: &[u8]) {
        let path = self.downloads.join(name);
        std::fs::write(&path, bytes).unwrap();
        self.browser.type_into("#file", path.to_str().unwrap());
    }

    /// The content of a file once it is downloaded.
    pub(crate) fn downloaded(&self, name: &str) -> Vec<u8> {
        let (path, start) = (self.downloads.join(name), Instant::now());
        while !path.is_file() {
            assert!(start.elapsed() < Duration::from_secs(30), "{name} was not downloaded");
            std::thread::sleep(Duration::from_millis(30));
        }
        std::fs::read(path).unwrap()
    }

    pub(crate) fn expect_no_errors(&self) {
        assert_eq!(self.browser.errors(), Vec::<Value>::new());
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        let _ignored = std::fs::remove_dir_all(&self.downloads);
        self.server.stop();
    }
}

#[test]
fn clicks_boxes_undo_and_downloads() {
    let Some(page) = Page::with_sample("mouse") else { return };
    let browser = &page.browser;
    let idle = "['undo', 'redo', 'new-object', 'isolate'].every(id => document.getElementById(id).disabled)";
    assert_eq!(browser.evaluate(idle), true, "there is nothing to take back, keep or cut out");
    let (pot, wall) = (page.place(200.0, 280.0), page.place(600.0, 40.0));
    let (of_pot, of_wall) = (page.brightness(pot), page.brightness(wall));
    // What is under the pointer lights up: everything else is dimmed.
    browser.hover(pot);
    page.wait_brightness(wall, of_wall, |share| share < 0.8);
    page.wait_brightness(pot, of_pot, |share| (share - 1.0).abs() < 0.05);
    browser.drag(&[pot]);
    page.wait_objects(1);
    assert_eq!(browser.evaluate("document.querySelectorAll('#candidates button').length"), 3);
    let first = page.facts();
    browser.click_holding(keys::SHIFT, page.place(60.0, 60.0));
    browser.wait("document.querySelectorAll('#candidates button').length === 0");
    page.wait_objects(1);
    // Undo takes the point back, redo brings it again; both know their masks.
    browser.press(&[keys::CONTROL], &["z"]);
    assert_eq!(page.facts(), first);
    assert_eq!(browser.evaluate("document.querySelectorAll('#candidates button').length"), 3);
    browser.press(&[], &["2"]);
    browser.wait(
        "document.querySelector('#candidates [aria-pressed=true]').textContent.startsWith('2')",
    );
    // A box around another object.
    browser.press(&[], &["n"]);
    browser.drag(&[page.place(330.0, 200.0), page.place(380.0, 300.0), page.place(520.0, 420.0)]);
    page.wait_objects(2);
    browser.click("#undo");
    page.wait_objects(1);
    browser.click("#redo");
    page.wait_objects(2);
    browser.click("[data-format=cutout]");
    assert!(page.downloaded("still-life.cutout.png").starts_with(b"\x89PNG"));
    browser.click("[data-format=coco]");
    let coco: Value = serde_json::from_slice(&page.downloaded("still-life.coco.json")).unwrap();
    assert_eq!(coco["annotations"].as_array().unwrap().len(), 2);
    page.expect_no_errors();
}

#[test]
fn keys_alone_are_enough() {
    let Some(page) = Page::open("keys", 1280, 800) else { return };
    let browser = &page.browser;
    page.tab_to("sample");
    browser.press(&[], &[keys::ENTER]);
    page.wait_ready();
    assert_eq!(browser.evaluate("document.activeElement.id"), "canvas");
    browser.press(&[keys::SHIFT], &[keys::RIGHT, keys::DOWN]);
    browser.press(&[], &[keys::ENTER]);
    page.wait_objects(1);
    browser.wait("/Object 1.*score/.test(document.querySelector('#live').textContent)");
    browser.press(&[], &[keys::RIGHT]);
    browser.press(&[keys::SHIFT], &[keys::ENTER]);
    browser.wait("document.querySelector('#candidates').hidden");
    page.wait_objects(1);
    browser.press(&[], &["n"]);
    browser.wait("document.querySelector('.is-active') === null");
    browser.press(&[], &["c"]);
    assert_eq!(
        browser.evaluate("document.querySelector('#isolate').getAttribute('aria-pressed')"),
        "true"
    );
    browser.press(&[], &["?"]);
    assert_eq!(browser.evaluate("document.querySelector('#help-dialog').open"), true);
    page.expect_no_errors();
}

#[test]
fn everything_is_shown_and_kept_by_clicks_on_a_small_screen() {
    let Some(page) = Page::open("small", 500, 780) else { return };
    let browser = &page.browser;
    // Headless windows are at least 500 wide; the page itself is made narrower.
    browser.script("document.documentElement.style.width = '400px';", &json!([]));
    browser.click("#sample");
    page.wait_ready();
    assert_eq!(browser.evaluate("document.body.scrollWidth <= 400"), true, "nothing is cut off");
    browser.press(&[], &["e"]);
    browser.wait("/masks. Click/.test(document.querySelector('#status').textContent)");
    browser.drag(&[page.place(200.0, 280.0)]);
    page.wait_objects(1);
    page.expect_no_errors();
}

/// Checks the page with axe-core; `None`, loudly, where there is none.
pub(crate) fn check_accessibility(browser: &Browser, what: &str) -> Option<()> {
    let Some(file) = std::env::var_os("CUTOUT_AXE") else {
        skip("CUTOUT_AXE does not name axe.min.js of axe-core: the page was not checked with it");
        return None;
    };
    browser.script(&std::fs::read_to_string(file).unwrap(), &json!([]));
    let script = "return axe.run().then(r => r.violations.map(v => v.id + ': ' + v.nodes.map(n => n.html).join(' ')));";
    assert_eq!(browser.script(script, &json!([])), json!([]), "{what}");
    Some(())
}

#[test]
fn no_rule_of_accessibility_is_broken() {
    let Some(page) = Page::open("axe", 1280, 800) else { return };
    let browser = &page.browser;
    let Some(()) = check_accessibility(browser, "the empty page") else { return };
    browser.click("#sample");
    page.wait_ready();
    browser.drag(&[page.place(200.0, 280.0)]);
    page.wait_objects(1);
    check_accessibility(browser, "a picture with an object");
    browser.press(&[], &["?"]);
    check_accessibility(browser, "the help");
}
