//! An HTTP server on this machine that can misbehave.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A request as it arrived.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) method: String,
    pub(crate) path: String,
    headers: Vec<(String, String)>,
    /// Requests with this method and path before this one.
    pub(crate) earlier: usize,
}

impl Asked {
    /// A header, by its name in lower case.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// First byte of the range.
    pub(crate) fn start(&self) -> Option<usize> {
        self.header("range")?.strip_prefix("bytes=")?.strip_suffix('-')?.parse().ok()
    }
}

/// What the server sends.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    /// The announced length; the length of the body unless it lies.
    pub(crate) length: Option<usize>,
    /// The pause after each of `pieces` equal pieces of the body.
    pub(crate) pause: Duration,
    pub(crate) pieces: usize,
}

impl Reply {
    pub(crate) fn new(status: u16) -> Self {
        Reply { status, pieces: 1, ..Reply::default() }
    }

    pub(crate) fn header(mut self, name: &str, value: impl Into<String>) -> Self {
        self.headers.push((name.to_owned(), value.into()));
        self
    }

    pub(crate) fn body(self, body: impl Into<Vec<u8>>) -> Self {
        Reply { body: body.into(), ..self }
    }
}

/// A running server. Its thread ends with the test process.
pub(crate) struct Server {
    pub(crate) address: String,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl Server {
    /// A server that answers every request, on a free port of 127.0.0.1.
    #[expect(clippy::disallowed_methods, reason = "a server waits, it does not compute")]
    pub(crate) fn start(answer: impl Fn(&Asked) -> Reply + Send + Sync + 'static) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (known, answer) = (Arc::clone(&asked), Arc::new(answer));
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (known, answer) = (Arc::clone(&known), Arc::clone(&answer));
                std::thread::spawn(move || serve(stream, &known, &*answer));
            }
        });
        Server { address, asked }
    }

    /// The requests so far.
    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }
}

/// Answers one request and closes the connection. A client that went away is ignored.
fn serve(stream: TcpStream, known: &Mutex<Vec<Asked>>, answer: &dyn Fn(&Asked) -> Reply) {
    let Some(mut asked) = read(&stream) else { return };
    let reply = {
        let mut known = known.lock().unwrap();
        let same = |other: &&Asked| other.method == asked.method && other.path == asked.path;
        asked.earlier = known.iter().filter(same).count();
        known.push(asked.clone());
        drop(known);
        answer(&asked)
    };
    let length = reply.length.unwrap_or(reply.body.len());
    let mut head = format!("HTTP/1.1 {} X\r\nconnection: close\r\n", reply.status);
    if !reply
        .headers
        .iter()
        .any(|(name, _)| name == "content-length" || name == "transfer-encoding")
    {
        head += &format!("content-length: {length}\r\n");
    }
    for (name, value) in &reply.headers {
        head += &format!("{name}: {value}\r\n");
    }
    head += "\r\n";
    let mut stream = stream;
    let _gone = stream.write_all(head.as_bytes());
    if asked.method == "HEAD" {
        return;
    }
    for piece in reply.body.chunks(reply.body.len().div_ceil(reply.pieces.max(1)).max(1)) {
        if stream.write_all(piece).and_then(|()| stream.flush()).is_err() {
            return;
        }
        std::thread::sleep(reply.pause);
    }
}

fn read(stream: &TcpStream) -> Option<Asked> {
    let mut lines = BufReader::new(stream).lines();
    let first = lines.next()?.ok()?;
    let mut words = first.split(' ');
    let (method, path) = (words.next()?.to_owned(), words.next()?.to_owned());
    let mut headers = Vec::new();
    for line in lines.map_while(Result::ok).take_while(|line| !line.is_empty()) {
        let (name, value) = line.split_once(':')?;
        headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    Some(Asked { method, path, headers, earlier: 0 })
}
