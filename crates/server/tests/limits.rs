//! Who may ask, and how much.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use cutout_server::Limits;
use serde_json::json;

use crate::support::{Running, STILL_LIFE, read_answer, request};

#[test]
fn a_token_is_needed_in_one_of_its_forms() {
    let server = Running::start_with(|options| options.token = Some("correct-horse".to_owned()));
    let status = |headers: &[&str]| server.send("GET", "/api/v1/info", headers, b"").status;
    assert_eq!(status(&[]), 401);
    for wrong in ["Bearer correct-hors", "Bearer correct-horse2", "Basic correct-horse", "Bearer"] {
        assert_eq!(status(&[&format!("authorization: {wrong}")]), 401, "{wrong}");
    }
    // The password of "me:correct-horse".
    let basic = "authorization: Basic bWU6Y29ycmVjdC1ob3JzZQ==";
    for right in [
        "authorization: Bearer correct-horse",
        "authorization: Token correct-horse",
        basic,
        "token: correct-horse",
    ] {
        assert_eq!(status(&[right]), 200, "{right}");
    }
    assert_eq!(server.get("/api/v1/info?api_key=correct-horse").status, 200);
    assert_eq!(server.get("/health").status, 200);
    assert_eq!(server.get("/app/main.js").status, 200, "the page asks for the token itself");
    // With a token, the name of the host does not matter.
    assert_eq!(server.send("GET", "/health", &["host: example.org"], b"").status, 200);
}

#[test]
fn pages_of_others_are_kept_out() {
    let server = Running::start_with(|options| {
        options.allowed_origins = vec!["https://tool.example".to_owned()];
    });
    let send = |method: &str, headers: &[&str]| server.send(method, "/api/v1/info", headers, b"");
    let own = format!("origin: http://{}", server.address);
    assert_eq!(send("GET", &[&own]).status, 200);
    assert_eq!(send("GET", &["origin: https://evil.example"]).status, 403);
    assert_eq!(send("GET", &["origin: null"]).status, 403);
    assert_eq!(send("GET", &["host: evil.example"]).status, 403, "a name that was pointed here");
    assert_eq!(send("GET", &["host: localhost:1"]).status, 200);
    let allowed = send("GET", &["origin: https://tool.example"]);
    assert_eq!(allowed.header("access-control-allow-origin"), Some("https://tool.example"));
    assert_eq!(send("OPTIONS", &["origin: https://tool.example"]).status, 204);
    assert!(send("GET", &[]).header("access-control-allow-origin").is_none());
}

#[test]
fn long_and_slow_requests_are_refused() {
    let server = Running::start_with(|options| {
        let (head_time, body_time) = (Duration::from_millis(400), Duration::from_millis(400));
        options.limits =
            Limits { body_bytes: 100_000, head_time, body_time, pixels: 1000, ..options.limits };
    });
    let long = server.send("POST", "/api/v1/images", &[], &vec![0; 200_000]);
    assert!(long.error(413).contains("100000"));
    let pixels = server.send("POST", "/api/v1/images", &[], STILL_LIFE).error(400);
    assert!(pixels.contains("pixels"), "{pixels}");
    let begin = |text: &str| {
        let mut stream = TcpStream::connect(server.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream.write_all(text.as_bytes()).unwrap();
        stream
    };
    let start = Instant::now();
    // The head never ends.
    let mut head = begin("GET /health HTTP/1.1\r\nhost: localhost\r\nx-slow: ");
    let mut rest = Vec::new();
    let _closed_or_reset = head.read_to_end(&mut rest);
    assert!(start.elapsed() < Duration::from_secs(10));
    // The body never ends.
    let mut body = begin(
        "POST /api/v1/images HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: 50\r\n\r\nabc",
    );
    assert_eq!(read_answer(&mut body).unwrap().status, 408);
    // A chunked body is counted too.
    let chunk = format!("{:x}\r\n{}\r\n", 60_000, "x".repeat(60_000));
    let mut chunked = begin(&format!(
        "POST /api/v1/images HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n{chunk}"
    ));
    let _ignored = chunked.write_all(format!("{chunk}0\r\n\r\n").as_bytes());
    assert_eq!(read_answer(&mut chunked).unwrap().status, 413);
}

#[test]
fn many_clients_get_an_answer_or_a_refusal() {
    let server = Running::start_with(|options| {
        options.limits = Limits { queue: 8, ..options.limits };
    });
    let id = server.add_still_life();
    let path = format!("/api/v1/images/{id}/segment");
    let statuses: Vec<u16> = std::thread::scope(|scope| {
        let ask = |number: usize| {
            let (address, path) = (server.address, &path);
            scope.spawn(move || {
                let body =
                    json!({"points": [[100 + number, 200, 1]], "multimask": false}).to_string();
                let answer = request(address, "POST", path, &[], body.as_bytes()).unwrap();
                if answer.status == 503 {
                    assert_eq!(answer.header("retry-after"), Some("2"));
                }
                answer.status
            })
        };
        let clients: Vec<_> = (0..100).map(ask).collect();
        clients.into_iter().map(|client| client.join().unwrap()).collect()
    });
    assert!(statuses.iter().all(|status| [200, 503].contains(status)), "{statuses:?}");
    assert!(statuses.contains(&200));
}

#[test]
fn one_picture_is_embedded_once_and_the_library_is_bounded() {
    let server = Running::start_with(|options| {
        options.limits = Limits { library_bytes: 1, ..options.limits };
    });
    let times: Vec<f64> = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..6)
            .map(|_| {
                let address = server.address;
                scope.spawn(move || {
                    let answer =
                        request(address, "POST", "/api/v1/images", &[], STILL_LIFE).unwrap();
                    answer.json(200)["embed_ms"].as_f64().unwrap()
                })
            })
            .collect();
        clients.into_iter().map(|client| client.join().unwrap()).collect()
    });
    assert_eq!(times.iter().filter(|time| **time > 0.0).count(), 1, "{times:?}");
    let first = server.add_still_life();
    // A byte after the picture makes it another one.
    let other = [STILL_LIFE, b"x"].concat();
    server.send("POST", "/api/v1/images", &[], &other).json(200);
    assert_eq!(server.get(&format!("/api/v1/images/{first}")).status, 404);
    assert_eq!(server.get("/api/v1/info").json(200)["pictures"], 1);
}
