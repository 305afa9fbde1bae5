//! `cutout serve`: every flag, and its end. The server itself is tested in `crates/server`.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::support::{Ended, Folder, MODEL, SAM3, folder, folder_with_model, folder_with_sam3};

/// A running server.
struct Server {
    child: Option<Child>,
    url: String,
}

/// How a server that must not start ended. One that starts is ended, and the test fails.
fn refused(folder: &Folder, arguments: &[&str]) -> Ended {
    let server = Server::begin(folder, arguments);
    assert_eq!(server.url, "", "{arguments:?}");
    server.end("-INT")
}

impl Server {
    /// Starts the server and reads its address; panics with its messages if it ends instead.
    fn start(folder: &Folder, arguments: &[&str]) -> Self {
        let server = Server::begin(folder, arguments);
        assert!(server.url.starts_with("http://"), "{}", server.end("-INT").stderr);
        server
    }

    /// Starts the server and reads its address, or nothing if it ends.
    fn begin(folder: &Folder, arguments: &[&str]) -> Self {
        let mut command = folder.command(&[&["serve"], arguments].concat());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut url = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut url).unwrap();
        Server { child: Some(child), url: url.trim().to_owned() }
    }

    /// Sends a signal and waits for the end.
    fn end(mut self, signal: &str) -> Ended {
        let child = self.child.take().unwrap();
        let _may_have_ended = Command::new("kill").args([signal, &child.id().to_string()]).status();
        Ended::of(child.wait_with_output().unwrap())
    }

    /// Host and port.
    fn host(&self) -> &str {
        self.url.strip_prefix("http://").unwrap().split('/').next().unwrap()
    }

    /// Status and JSON of an answer.
    fn get(&self, path: &str, headers: &[&str]) -> (u16, Value) {
        let port = self.host().rsplit_once(':').unwrap().1;
        let address = self.host().replace("0.0.0.0", "127.0.0.1");
        let mut stream = TcpStream::connect(&address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let headers: String = headers.iter().map(|header| format!("{header}\r\n")).collect();
        let head = format!(
            "GET {path} HTTP/1.1\r\nhost: localhost:{port}\r\nconnection: close\r\n{headers}\r\n"
        );
        stream.write_all(head.as_bytes()).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        let status = head.split_whitespace().nth(1).unwrap().parse().unwrap();
        (status, serde_json::from_str(body).unwrap())
    }

    fn info(&self) -> Value {
        self.get("/api/v1/info", &[]).1
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ignored = child.kill();
            let _ignored = child.wait();
        }
    }
}

#[test]
pub(crate) fn models_addresses_and_memory() {
    let folder = folder_with_model();
    let taken = std::net::TcpListener::bind("127.0.0.2:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    refused(&folder, &["--host", "127.0.0.2", "--port", &port]).fails(&["127.0.0.2", &port]);
    drop(taken);
    let arguments = [
        "--host",
        "127.0.0.2",
        "--port",
        &port,
        "--model",
        MODEL,
        "--model",
        "built-in",
        "--cache",
        "7",
    ];
    let server = Server::start(&folder, &arguments);
    assert_eq!(server.url, format!("http://127.0.0.2:{port}/"));
    let info = server.info();
    assert_eq!(info["models"][0]["id"], "model");
    assert_eq!(info["models"][1]["id"], "built-in");
    assert_eq!(info["library_budget"], 7 << 20);
    assert_eq!(server.end("-INT").code, Some(0), "Ctrl-C ends a server, which is no failure");
    // Without --model: the built-in one, and those in the usual places.
    let server = Server::start(&folder, &["--port", "0"]);
    let info = server.info();
    assert_eq!(
        (&info["models"][0]["id"], &info["models"][1]["id"]),
        (&"built-in".into(), &"model".into())
    );
    assert_eq!(server.end("-TERM").code, Some(0));
}

#[test]
pub(crate) fn labels_are_detectors() {
    let folder = folder_with_sam3();
    let arguments = ["--port", "0", "--model", SAM3, "--label", "cat", "--label", "red car"];
    let server = Server::start(&folder, &arguments);
    let (status, functions) = server.get("/api/functions", &[]);
    assert_eq!(status, 200);
    let spec = &functions["cutout-sam3-labels"]["metadata"]["annotations"]["spec"];
    assert!(spec.as_str().is_some_and(|spec| spec.contains("red car")), "{functions}");
}

#[test]
pub(crate) fn others_need_a_token() {
    let folder = folder();
    let everywhere = ["--host", "0.0.0.0", "--port", "0"];
    refused(&folder, &everywhere).wrong_usage(&["--token", "--insecure"]);
    let short = [&everywhere[..], &["--token", "short"]].concat();
    refused(&folder, &short).wrong_usage(&["at least 8"]);
    let server = Server::start(&folder, &[&everywhere[..], &["--token", "correct-horse"]].concat());
    assert!(server.url.ends_with("/#token=correct-horse"), "{}", server.url);
    assert_eq!(server.get("/api/v1/info", &[]).0, 401);
    assert_eq!(server.get("/api/v1/info", &["authorization: Bearer correct-horse"]).0, 200);
    let server = Server::start(&folder, &[&everywhere[..], &["--insecure"]].concat());
    assert_eq!(server.get("/api/v1/info", &[]).0, 200);
    let said = server.end("-INT").stderr;
    assert!(said.contains("warning: everybody"), "{said}");
    let origin = ["--port", "0", "--allow-origin", "https://tool.example"];
    let server = Server::start(&folder, &origin);
    assert_eq!(server.get("/api/v1/info", &["origin: https://tool.example"]).0, 200);
    assert_eq!(server.get("/api/v1/info", &["origin: https://other.example"]).0, 403);
}

#[test]
pub(crate) fn ways_to_run() {
    let folder = folder();
    let fails = |more: &[&str], words: &[&str]| {
        refused(&folder, &[&["--port", "0"], more].concat()).fails(words);
    };
    fails(&["--device", "cuda:4711"], &["cuda:4711"]);
    fails(&["--precision", "f16"], &["the CPU multiplies in f32, bf16 or int8"]);
    refused(&folder, &["--port", "0", "--device", "cuda:all"]).wrong_usage(&[
        "cuda:all",
        "cutout everything",
        "on one",
    ]);
    let no_memory = ["--port", "0", "--vram-limit", "0"];
    refused(&folder, &no_memory).wrong_usage(&["--vram-limit"]);
    folder.write("wrong.toml", "speed = \"ludicrous\"\n");
    fails(&["--profile", "wrong.toml"], &["wrong.toml", "speed"]);
    let server = Server::start(&folder, &["--port", "0", "--threads", "3"]);
    let info = server.info();
    assert!(info["models"][0]["device"].as_str().unwrap().contains("3 threads"), "{info}");
}
