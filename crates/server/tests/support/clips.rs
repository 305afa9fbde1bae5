//! Clips and the events of tracking.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use cutout_imaging::{Image, encode_image};
use cutout_video::{ArchiveWriter, OpenOptions, from_reader};
use serde_json::Value;

use super::Running;

/// The clip of the examples: a ball rolls behind a post, 320 by 240.
pub(crate) const BALL: &[u8] = include_bytes!("../../../../examples/ball.gif");

/// The frames of the clip of the examples.
pub(crate) fn ball_frames() -> Vec<Image> {
    let source = from_reader(BALL, "ball.gif", &OpenOptions::default()).unwrap();
    source.collect::<Result<_, _>>().unwrap()
}

/// A zip archive of frames as PNG.
pub(crate) fn zipped(frames: &[Image]) -> Vec<u8> {
    let mut writer = ArchiveWriter::new(Vec::new());
    for (index, frame) in frames.iter().enumerate() {
        writer.add(&format!("{index}.png"), &encode_image(frame).unwrap()).unwrap();
    }
    writer.finish().unwrap()
}

/// A form with files, and its content type.
pub(crate) fn form(files: &[Vec<u8>]) -> (String, Vec<u8>) {
    let mut body = Vec::new();
    for file in files {
        body.extend(
            b"--limit\r\ncontent-disposition: form-data; name=\"f\"; filename=\"a\"\r\n\r\n",
        );
        body.extend(file);
        body.extend(b"\r\n");
    }
    body.extend(b"--limit--\r\n");
    ("content-type: multipart/form-data; boundary=limit".to_owned(), body)
}

/// An event of a stream.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    pub(crate) name: String,
    pub(crate) data: Value,
}

/// The events of an answer, as they arrive.
pub(crate) struct Events {
    reader: BufReader<TcpStream>,
    pub(crate) status: u16,
}

impl Events {
    /// Sends a request whose answer is a stream of events.
    pub(crate) fn ask(server: &Running, path: &str, body: &Value) -> Self {
        let mut stream = TcpStream::connect(server.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
        let body = body.to_string();
        // Answers to HTTP/1.0 are not cut into chunks.
        let head = format!(
            "POST {path} HTTP/1.0\r\nhost: {}\r\ncontent-length: {}\r\n\r\n{body}",
            server.address,
            body.len()
        );
        stream.write_all(head.as_bytes()).unwrap();
        let mut reader = BufReader::new(stream);
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        let status = line.split_whitespace().nth(1).unwrap().parse().unwrap();
        while !line.trim().is_empty() {
            line.clear();
            reader.read_line(&mut line).unwrap();
        }
        Events { reader, status }
    }

    /// What is left of an answer that is no stream.
    pub(crate) fn rest(mut self) -> String {
        let mut text = String::new();
        self.reader.read_to_string(&mut text).unwrap();
        text
    }
}

impl Iterator for Events {
    type Item = Event;

    fn next(&mut self) -> Option<Event> {
        let mut event = Event { name: String::new(), data: Value::Null };
        loop {
            let mut line = String::new();
            if self.reader.read_line(&mut line).unwrap() == 0 {
                return None;
            }
            if let Some(name) = line.strip_prefix("event: ") {
                event.name = name.trim().to_owned();
            } else if let Some(data) = line.strip_prefix("data: ") {
                event.data = serde_json::from_str(data).unwrap();
            } else if line == "\n" && event.data != Value::Null {
                return Some(event);
            }
        }
    }
}
