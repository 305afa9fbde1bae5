//! A server inside the test, and a client of few lines.

pub(crate) mod clips;
pub(crate) mod webdriver;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

use cutout_sam::{Profile, Sam};
use cutout_server::{ModelSource, Options, Server};
use serde_json::Value;

/// The picture of the examples, 640 by 480.
pub(crate) const STILL_LIFE: &[u8] = include_bytes!("../../../../examples/still-life.jpg");

/// A server that runs until it is dropped.
pub(crate) struct Running {
    pub(crate) address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    /// The built-in model on a free port.
    pub(crate) fn start() -> Self {
        Running::start_with(|_| ())
    }

    /// The same with other options.
    pub(crate) fn start_with(change: impl FnOnce(&mut Options)) -> Self {
        // Servers share one model, so that its programs are compiled once.
        static MODEL: OnceLock<Sam> = OnceLock::new();
        let open = || Sam::builtin_with(Profile::default()).unwrap();
        let model = ModelSource::built_in(move || Ok(MODEL.get_or_init(open).clone()));
        let mut options = Options::new(([127, 0, 0, 1], 0).into(), vec![model]);
        change(&mut options);
        let server = Server::bind(options).unwrap();
        let address = server.address();
        let stop = Arc::new(AtomicBool::new(false));
        let asked = Arc::clone(&stop);
        let run = move || server.run(move || asked.load(Ordering::Relaxed)).unwrap();
        let thread = Some(std::thread::spawn(run));
        Running { address, stop, thread }
    }

    /// Asks the server to stop and waits for its end.
    pub(crate) fn stop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        self.send("GET", path, &[], b"")
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Answer {
        self.send("POST", path, &["content-type: application/json"], body.to_string().as_bytes())
    }

    pub(crate) fn send(&self, method: &str, path: &str, headers: &[&str], body: &[u8]) -> Answer {
        request(self.address, method, path, headers, body).unwrap()
    }

    /// Adds the picture of the examples and returns its name.
    pub(crate) fn add_still_life(&self) -> String {
        let added = self.send("POST", "/api/v1/images", &[], STILL_LIFE).json(200);
        added["image_id"].as_str().unwrap().to_owned()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop();
    }
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    /// The JSON of an answer with this status.
    pub(crate) fn json(&self, status: u16) -> Value {
        let text = String::from_utf8_lossy(&self.body);
        assert_eq!(self.status, status, "{}\n{text}", self.head);
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {text}"))
    }

    /// The message of an error with this status.
    pub(crate) fn error(&self, status: u16) -> String {
        self.json(status)["error"]["message"].as_str().unwrap().to_owned()
    }

    /// The value of a header.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let line = |line: &'_ str| {
            line.split_once(':').is_some_and(|(key, _)| key.eq_ignore_ascii_case(name))
        };
        let found = self.head.lines().find(|text| line(text))?;
        found.split_once(':').map(|(_, value)| value.trim())
    }
}

/// Sends a request on a connection of its own.
pub(crate) fn request(
    address: SocketAddr,
    method: &str,
    path: &str,
    headers: &[&str],
    body: &[u8],
) -> std::io::Result<Answer> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(60)))?;
    let has_host = headers.iter().any(|header| header.to_ascii_lowercase().starts_with("host:"));
    let host = if has_host { String::new() } else { format!("host: {address}\r\n") };
    let lines: String = headers.iter().map(|header| format!("{header}\r\n")).collect();
    let head = format!(
        "{method} {path} HTTP/1.1\r\n{host}connection: close\r\ncontent-length: {}\r\n{lines}\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes())?;
    // A server that refuses a request may close before it has read the body.
    let _ignored = stream.write_all(body);
    read_answer(&mut stream)
}

/// Reads an answer: as long as it says it is, or up to the end of the connection.
pub(crate) fn read_answer(stream: &mut TcpStream) -> std::io::Result<Answer> {
    let mut received = Vec::new();
    let mut part = [0; 1 << 16];
    while !is_whole(&received) {
        match stream.read(&mut part) {
            Ok(0) => break,
            Ok(count) => received.extend(&part[..count]),
            Err(error) if received.is_empty() => return Err(error),
            Err(_) => break,
        }
    }
    let (head, body) = split(&received);
    let status = head.split_whitespace().nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    Ok(Answer { status, head, body: body.to_vec() })
}

fn split(received: &[u8]) -> (String, &[u8]) {
    let end = received.windows(4).position(|bytes| bytes == b"\r\n\r\n").unwrap_or(received.len());
    let body = received.get(end + 4..).unwrap_or_default();
    (String::from_utf8_lossy(&received[..end]).into_owned(), body)
}

/// Whether the head and as many bytes as it announces are there.
fn is_whole(received: &[u8]) -> bool {
    if !received.windows(4).any(|bytes| bytes == b"\r\n\r\n") {
        return false;
    }
    let (head, body) = split(received);
    let answer = Answer { status: 0, head, body: Vec::new() };
    let length = answer.header("content-length").and_then(|length| length.parse::<usize>().ok());
    length.is_some_and(|length| body.len() >= length)
}
