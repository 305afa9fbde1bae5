//! Phrases on the page in Chromium: the field where a model finds phrases, and the objects in pictures and clips.

use serde_json::{Value, json};

use crate::browser::Page;
use crate::phrases::{picture, png, server_for_page};
use crate::support::clips::{Event, Events, zipped};
use crate::support::webdriver::keys;

const IS_OFFERED: &str = "document.querySelector('#phrase-form').checkVisibility()";

impl Page {
    fn choose_model(&self, id: &str) {
        let script = "const s = document.querySelector('#model'); s.value = arguments[0]; \
                      s.dispatchEvent(new Event('change'));";
        self.browser.script(script, &json!([id]));
    }

    fn ask_for(&self, phrases: &str) {
        self.browser.script("document.querySelector('#phrase').value = '';", &json!([]));
        self.browser.type_into("#phrase", &format!("{phrases}{}", keys::ENTER));
    }

    /// Names in the list of objects.
    fn names(&self) -> Vec<String> {
        let names = "[...document.querySelectorAll('.object input')].map(e => e.value)";
        serde_json::from_value(self.browser.evaluate(names)).unwrap()
    }
}

#[test]
fn phrases_find_the_objects_of_a_picture() {
    let Some(page) = Page::of(server_for_page, "phrases", 1280, 800) else { return };
    let browser = &page.browser;
    assert_eq!(browser.evaluate(IS_OFFERED), false, "the built-in model finds no phrases");
    page.choose_model("sure");
    assert_eq!(browser.evaluate(IS_OFFERED), true);
    page.choose_file("pattern.png", &png());
    page.wait_ready();
    page.ask_for("cat, yellow school bus");
    browser.wait("/^[0-9]+ found$/.test(document.querySelector('#live').textContent)");

    let added = page.server.send("POST", "/api/v1/images?model=sure", &[], &png()).json(200);
    let path = format!("/api/v1/images/{}/find", added["image_id"].as_str().unwrap());
    let body = json!({"phrases": ["cat", "yellow school bus"]});
    let found = page.server.post(&path, &body).json(200);
    let phrases = found["phrases"].as_array().unwrap();
    let masks = |phrase: &Value| phrase["masks"].as_array().unwrap().clone();
    let name = |phrase: &Value| phrase["phrase"].as_str().unwrap().to_owned();
    let named = |phrase: &Value| vec![name(phrase); masks(phrase).len()];
    assert!(phrases.iter().all(|phrase| !masks(phrase).is_empty()), "the model finds something");
    let names: Vec<String> = phrases.iter().flat_map(named).collect();
    page.wait_objects(names.len());
    assert_eq!(page.names(), names);
    browser.click("[data-format=coco]");
    let coco: Value = serde_json::from_slice(&page.downloaded("pattern.coco.json")).unwrap();
    let annotations = coco["annotations"].as_array().unwrap();
    let shown: Vec<&Value> = annotations.iter().map(|object| &object["segmentation"]).collect();
    let all: Vec<Value> = phrases.iter().flat_map(masks).collect();
    assert_eq!(shown, all.iter().map(|mask| &mask["rle"]).collect::<Vec<_>>());
    // One step back takes back what one question found.
    browser.click("#undo");
    page.wait_objects(0);
    page.choose_model("doubtful");
    page.wait_ready();
    page.ask_for("wheel, cat");
    browser.wait(
        "document.querySelector('#status').textContent === 'No wheel or cat in this picture.'",
    );
    page.choose_model("built-in");
    assert_eq!(browser.evaluate(IS_OFFERED), false);
    page.expect_no_errors();
}

#[test]
fn phrases_are_tracked_through_a_clip_on_the_page() {
    let Some(page) = Page::of(server_for_page, "clip-phrases", 1280, 800) else { return };
    let browser = &page.browser;
    page.choose_model("sure");
    let frames: Vec<_> = (0..4).map(|frame| picture(frame * 5)).collect();
    let file = zipped(&frames);
    page.choose_file("pattern.zip", &file);
    browser.wait("document.querySelector('#live').textContent.startsWith('Clip ready')");
    page.ask_for("cat");
    browser.wait("document.querySelector('#live').textContent === 'Tracked 4 frames'");
    let clip = page.server.send("POST", "/api/v1/videos?model=sure", &[], &file).json(200);
    let path = format!("/api/v1/videos/{}/track", clip["video_id"].as_str().unwrap());
    let events = Events::ask(&page.server, &path, &json!({"phrases": ["cat"]}));
    let expected: Vec<Event> = events.filter(|event| event.name == "frame").collect();
    let mut numbers: Vec<u64> = Vec::new();
    let masks = |event: &Event| event.data["masks"].as_array().unwrap().clone();
    for mask in expected.iter().flat_map(masks) {
        let number = mask["object"].as_u64().unwrap();
        if !numbers.contains(&number) {
            numbers.push(number);
        }
    }
    assert!(!numbers.is_empty(), "the model finds something");
    let names: Vec<String> = numbers.iter().map(|number| format!("cat {number}")).collect();
    assert_eq!(page.names(), names);
    browser.click("[data-clip-format=jsonl]");
    let lines = String::from_utf8(page.downloaded("pattern.masks.jsonl")).unwrap();
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), expected.len());
    for (line, event) in lines.iter().zip(&expected) {
        assert_eq!(line["frame"], event.data["frame"]);
        let shown: Vec<Value> = line["objects"]
            .as_array()
            .unwrap()
            .iter()
            .map(|object| json!([object["id"], object["segmentation"]]))
            .collect();
        let mut wanted: Vec<Value> =
            masks(event).iter().map(|mask| json!([mask["object"], mask["rle"]])).collect();
        wanted.sort_by_key(|pair| pair[0].as_u64());
        assert_eq!(shown, wanted);
    }
    page.expect_no_errors();
}
