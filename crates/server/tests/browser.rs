//! The page in Chromium: pictures, clicks, boxes, keys, downloads, and what a screen reader finds.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::Running;
use crate::support::webdriver::{Browser, keys, skip};

/// A page with the sample picture, and the folder of its downloads.
struct Page {
    browser: Browser,
    downloads: PathBuf,
    // Last, so that the browser is closed before the server stops.
    server: Running,
}

impl Page {
    /// `None` where there is no browser.
    fn open(name: &str, width: u32, height: u32) -> Option<Self> {
        let downloads =
            std::env::temp_dir().join(format!("cutout-page-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&downloads).unwrap();
        let browser = Browser::open(width, height, &downloads)?;
        let server = Running::start();
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

    fn wait_ready(&self) {
        self.browser
            .wait("document.querySelector('#live').textContent.startsWith('Picture ready')");
    }

    /// Position in the window of a position in the picture, which is fitted and in the middle.
    fn place(&self, x: f64, y: f64) -> [f64; 2] {
        let script = "const c = document.querySelector('#canvas'), r = c.getBoundingClientRect();
            const side = Math.min(28, r.width / 20), room = [r.width - 2 * side, r.height - 108];
            const s = Math.min(room[0] / 640, room[1] / 480, 4);
            return [r.left + (r.width - 640 * s) / 2, r.top + 24 + (room[1] - 480 * s) / 2, s];";
        let found: [f64; 3] =
            serde_json::from_value(self.browser.script(script, &json!([]))).unwrap();
        [found[0] + x * found[2], found[1] + y * found[2]]
    }

    /// Waits until the list has this many objects with masks.
    fn wait_objects(&self, count: usize) {
        self.browser.wait(&format!(
            "document.querySelectorAll('.object').length === {count} && \
             [...document.querySelectorAll('.object .facts')].every(e => e.textContent.includes('score'))"
        ));
    }

    fn facts(&self) -> Vec<String> {
        let texts = "[...document.querySelectorAll('.object .facts')].map(e => e.textContent)";
        serde_json::from_value(self.browser.evaluate(texts)).unwrap()
    }

    /// The content of a file once it is downloaded.
    fn downloaded(&self, name: &str) -> Vec<u8> {
        let (path, start) = (self.downloads.join(name), Instant::now());
        while !path.is_file() {
            assert!(start.elapsed() < Duration::from_secs(30), "{name} was not downloaded");
            std::thread::sleep(Duration::from_millis(30));
        }
        std::fs::read(path).unwrap()
    }

    fn expect_no_errors(&self) {
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
    let pot = page.place(200.0, 280.0);
    browser.hover(pot);
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
    // To the button of the sample by Tab, as somebody without a pointer gets there.
    let is_there = "document.activeElement.id === 'sample'";
    let mut steps = 0;
    while browser.evaluate(is_there) != true {
        browser.press(&[], &[keys::TAB]);
        steps += 1;
        assert!(steps < 20, "Tab does not get to the sample");
    }
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

#[test]
fn no_rule_of_accessibility_is_broken() {
    let Some(file) = std::env::var_os("CUTOUT_AXE") else {
        return skip(
            "CUTOUT_AXE does not name axe.min.js of axe-core: the page was not checked with it",
        );
    };
    let axe = std::fs::read_to_string(file).unwrap();
    let Some(page) = Page::open("axe", 1280, 800) else { return };
    let browser = &page.browser;
    let check = |what: &str| {
        browser.script(&axe, &json!([]));
        let script = "return axe.run().then(r => r.violations.map(v => v.id + ': ' + v.nodes.map(n => n.html).join(' ')));";
        let found = browser.script(script, &json!([]));
        assert_eq!(found, json!([]), "{what}");
    };
    check("the empty page");
    browser.click("#sample");
    page.wait_ready();
    browser.drag(&[page.place(200.0, 280.0)]);
    page.wait_objects(1);
    check("a picture with an object");
    browser.press(&[], &["?"]);
    check("the help");
}
