//! A browser that the test drives: chromedriver's JSON over HTTP.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use cutout_testing::skip;
use serde_json::{Value, json};

use super::request;

/// Longest wait for the page. A busy machine is slow; a defect waits for ever.
pub(crate) const PATIENCE: Duration = Duration::from_secs(240);

/// Key codes of WebDriver.
pub(crate) mod keys {
    pub(crate) const ENTER: &str = "\u{e007}";
    pub(crate) const SHIFT: &str = "\u{e008}";
    pub(crate) const CONTROL: &str = "\u{e009}";
    pub(crate) const RIGHT: &str = "\u{e014}";
    pub(crate) const DOWN: &str = "\u{e015}";
    pub(crate) const LEFT: &str = "\u{e012}";
    pub(crate) const HOME: &str = "\u{e011}";
    pub(crate) const END: &str = "\u{e010}";
    pub(crate) const ESCAPE: &str = "\u{e00c}";
    pub(crate) const TAB: &str = "\u{e004}";
}

/// An open browser window.
pub(crate) struct Browser {
    driver: Child,
    address: SocketAddr,
    session: String,
}

/// A program of this name in the folders of `PATH`.
fn program(name: &str) -> Option<PathBuf> {
    let folders = std::env::var_os("PATH")?;
    std::env::split_paths(&folders).map(|folder| folder.join(name)).find(|path| path.is_file())
}

impl Browser {
    /// A window of this size; `None`, loudly, where there is no Chromium with its driver.
    pub(crate) fn open(width: u32, height: u32, downloads: &Path) -> Option<Self> {
        let found =
            ["chromium", "chromium-browser", "google-chrome"].iter().find_map(|name| program(name));
        let (Some(browser), Some(driver)) = (found, program("chromedriver")) else {
            skip("no chromium and chromedriver: the page was not opened in a browser");
            return None;
        };
        let mut driver = Command::new(driver)
            .arg("--port=0")
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let output = BufReader::new(driver.stdout.take().unwrap());
        let words = "started successfully on port ";
        let port = output.lines().map_while(Result::ok).find_map(|line| {
            let rest = line.split_once(words)?.1.trim_end_matches('.').to_owned();
            rest.parse::<u16>().ok()
        });
        let address = SocketAddr::from(([127, 0, 0, 1], port.unwrap()));
        let arguments = [
            "--headless",
            "--no-sandbox",
            "--disable-dev-shm-usage",
            "--disable-gpu",
            "--force-device-scale-factor=1",
            &format!("--window-size={width},{height}"),
        ];
        let preferences = json!({"download.default_directory": downloads});
        let options = json!({"binary": browser, "args": arguments, "prefs": preferences});
        let wanted = json!({"capabilities": {"alwaysMatch": {
            "goog:chromeOptions": options,
            "goog:loggingPrefs": {"browser": "ALL"},
        }}});
        let mut opened = Browser { driver, address, session: String::new() };
        let session = opened.call("POST", "/session", &wanted);
        opened.session = session["sessionId"].as_str().unwrap().to_owned();
        Some(opened)
    }

    fn call(&self, method: &str, path: &str, body: &Value) -> Value {
        let body = if method == "POST" { body.to_string() } else { String::new() };
        let headers = ["content-type: application/json", "host: localhost"];
        let answer = request(self.address, method, path, &headers, body.as_bytes()).unwrap();
        let value: Value = serde_json::from_slice(&answer.body).unwrap();
        assert_eq!(answer.status, 200, "{path}: {value}");
        value["value"].clone()
    }

    fn post(&self, what: &str, body: &Value) -> Value {
        self.call("POST", &format!("/session/{}/{what}", self.session), body)
    }

    pub(crate) fn go(&self, url: &str) {
        self.post("url", &json!({"url": url}));
    }

    /// The value of an expression in the page.
    pub(crate) fn evaluate(&self, expression: &str) -> Value {
        self.script(&format!("return {expression};"), &json!([]))
    }

    /// Runs a script that returns a value or a promise of one.
    pub(crate) fn script(&self, script: &str, arguments: &Value) -> Value {
        self.post("execute/sync", &json!({"script": script, "args": arguments}))
    }

    /// Waits until an expression is true.
    pub(crate) fn wait(&self, expression: &str) {
        let start = Instant::now();
        while self.evaluate(&format!("Boolean({expression})")) != true {
            let log = || self.post("se/log", &json!({"type": "browser"}));
            let late = start.elapsed() > PATIENCE;
            assert!(!late, "not true: {expression}\nlog of the browser: {}", log());
            std::thread::sleep(Duration::from_millis(30));
        }
    }

    /// Name of the first element of a selector.
    fn element(&self, selector: &str) -> String {
        let found = self.post("element", &json!({"using": "css selector", "value": selector}));
        found.as_object().unwrap().values().next().unwrap().as_str().unwrap().to_owned()
    }

    /// Clicks the first element of a selector.
    pub(crate) fn click(&self, selector: &str) {
        self.post(&format!("element/{}/click", self.element(selector)), &json!({}));
    }

    /// Types into the first element of a selector. What is typed into a field for files is a path.
    pub(crate) fn type_into(&self, selector: &str, text: &str) {
        self.post(&format!("element/{}/value", self.element(selector)), &json!({"text": text}));
    }

    /// Moves the pointer through positions of the window, with the button down from the first to the last.
    pub(crate) fn drag(&self, path: &[[f64; 2]]) {
        let mut actions = Vec::new();
        for (index, [x, y]) in path.iter().enumerate() {
            let (x, y) = (x.round() as i64, y.round() as i64);
            actions.push(json!({"type": "pointerMove", "x": x, "y": y, "duration": 20}));
            if index == 0 {
                actions.push(json!({"type": "pointerDown", "button": 0}));
            }
        }
        actions.push(json!({"type": "pointerUp", "button": 0}));
        self.act(json!([pointer(&actions)]));
    }

    /// Moves the pointer without pressing it.
    pub(crate) fn hover(&self, [x, y]: [f64; 2]) {
        let step = json!({"type": "pointerMove", "x": x.round() as i64, "y": y.round() as i64, "duration": 20});
        self.act(json!([pointer(&[step])]));
    }

    /// Clicks at a position with a key held.
    pub(crate) fn click_holding(&self, key: &str, [x, y]: [f64; 2]) {
        let (x, y) = (x.round() as i64, y.round() as i64);
        self.act(
            json!([{"type": "key", "id": "keys", "actions": [{"type": "keyDown", "value": key}]}]),
        );
        self.drag(&[[x as f64, y as f64]]);
        self.act(
            json!([{"type": "key", "id": "keys", "actions": [{"type": "keyUp", "value": key}]}]),
        );
    }

    /// Presses keys one after another, while others are held.
    pub(crate) fn press(&self, held: &[&str], keys: &[&str]) {
        let mut actions: Vec<Value> =
            held.iter().map(|key| json!({"type": "keyDown", "value": key})).collect();
        for key in keys {
            actions.push(json!({"type": "keyDown", "value": key}));
            actions.push(json!({"type": "keyUp", "value": key}));
        }
        actions.extend(held.iter().map(|key| json!({"type": "keyUp", "value": key})));
        self.act(json!([{"type": "key", "id": "keys", "actions": actions}]));
    }

    fn act(&self, actions: Value) {
        self.post("actions", &json!({"actions": actions}));
    }

    /// Errors in the console of the page.
    pub(crate) fn errors(&self) -> Vec<Value> {
        let log = self.post("se/log", &json!({"type": "browser"}));
        let is_error = |entry: &&Value| entry["level"] == "SEVERE";
        log.as_array().unwrap().iter().filter(is_error).cloned().collect()
    }
}

fn pointer(actions: &[Value]) -> Value {
    json!({"type": "pointer", "id": "mouse", "parameters": {"pointerType": "mouse"}, "actions": actions})
}

impl Drop for Browser {
    fn drop(&mut self) {
        if !self.session.is_empty() {
            let path = format!("/session/{}", self.session);
            let _closes_the_window =
                request(self.address, "DELETE", &path, &["host: localhost"], b"");
        }
        let _ignored = self.driver.kill();
        let _ignored = self.driver.wait();
    }
}
