//! The server under load: 8 users on 8 pictures, 1,000 clicks on one, 200 clients at once.
//!
//! ```console
//! $ cargo run --release -p cutout-server --example load -- examples/still-life.jpg
//! ```
#![allow(clippy::print_stdout, reason = "an example prints")]
#![allow(clippy::disallowed_methods, reason = "clients run on threads")]

use std::error::Error;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use cutout_sam::Sam;
use cutout_server::{ModelSource, Options, Server};
use serde_json::{Value, json};

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

const USERS: usize = 8;
const ROUNDS: usize = 4;
const CLICKS: usize = 1000;
const CROWD: usize = 200;

fn main() -> Outcome<()> {
    let file = std::env::args().nth(1).unwrap_or_else(|| "examples/still-life.jpg".to_owned());
    let picture = std::fs::read(&file)?;
    let model = ModelSource::built_in(|| Sam::builtin().map_err(|error| error.to_string()));
    let server = Server::bind(Options::new(([127, 0, 0, 1], 0).into(), vec![model]))?;
    let address = server.address();
    let stop = Arc::new(AtomicBool::new(false));
    let asked = Arc::clone(&stop);
    let running = std::thread::spawn(move || server.run(move || asked.load(Ordering::Relaxed)));
    // Compiles the programs of the model.
    let first = add(address, &picture, 99)?;
    click(address, &first.0, 0)?;
    users(address, &picture)?;
    clicks(address, &first.0)?;
    crowd(address, &first.0);
    stop.store(true, Ordering::Relaxed);
    running.join().map_err(|_| "the server failed")??;
    Ok(())
}

/// Users on pictures of their own, in turns: the first click of a new picture, then clicks on it.
fn users(address: SocketAddr, picture: &[u8]) -> Outcome<()> {
    let user = |number: usize| -> Outcome<(Vec<f64>, Vec<f64>)> {
        let (mut beyond, mut later) = (Vec::new(), Vec::new());
        for round in 0..ROUNDS {
            let start = Instant::now();
            let (id, embedding) = add(address, picture, 100 * number + round + 1000)?;
            click(address, &id, number)?;
            beyond.push(milliseconds(start) - embedding);
            let start = Instant::now();
            click(address, &id, number + 40)?;
            later.push(milliseconds(start));
        }
        Ok((beyond, later))
    };
    // In turns: one user at a time has a request under way.
    let (mut beyond, mut later) = (Vec::new(), Vec::new());
    for number in 0..USERS {
        let (one, other) = user(number)?;
        beyond.extend(one);
        later.extend(other);
    }
    report("8 users in turns: first click of a picture, beyond its features", beyond);
    report("8 users in turns: later clicks", later);
    let all: Vec<Outcome<_>> = std::thread::scope(|scope| {
        let threads: Vec<_> =
            (0..USERS).map(|number| scope.spawn(move || user(number + 50))).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or(Err("a user failed".into())))
            .collect()
    });
    let mut later = Vec::new();
    for result in all {
        later.extend(result?.1);
    }
    report("8 users at once: later clicks", later);
    Ok(())
}

/// Clicks on one picture, none of which may be lost.
fn clicks(address: SocketAddr, id: &str) -> Outcome<()> {
    for number in 0..100 {
        click(address, id, number)?;
    }
    let before = resident();
    let mut times = Vec::new();
    for number in 0..CLICKS {
        let start = Instant::now();
        click(address, id, number)?;
        times.push(milliseconds(start));
    }
    report("1,000 clicks on a picture", times);
    println!("  memory before {before} MiB, after {} MiB", resident());
    Ok(())
}

/// Many clients at the same moment.
fn crowd(address: SocketAddr, id: &str) {
    let statuses: Vec<u16> = std::thread::scope(|scope| {
        let ask = |number: usize| {
            scope.spawn(move || send_click(address, id, number).map_or(0, |answer| answer.0))
        };
        let threads: Vec<_> = (0..CROWD).map(ask).collect();
        threads.into_iter().map(|thread| thread.join().unwrap_or(0)).collect()
    });
    let count = |status: u16| statuses.iter().filter(|found| **found == status).count();
    let (answers, refusals) = (count(200), count(503));
    println!(
        "200 clients at once: {answers} answers, {refusals} times 503, {} lost",
        CROWD - answers - refusals
    );
}

/// Adds a picture that differs from others by bytes behind its end; its name and the milliseconds of its features.
fn add(address: SocketAddr, picture: &[u8], number: usize) -> Outcome<(String, f64)> {
    let body = [picture, &number.to_le_bytes()].concat();
    let (status, answer) = send(address, "/api/v1/images", &body)?;
    let id = answer["image_id"].as_str().ok_or_else(|| format!("status {status}: {answer}"))?;
    Ok((id.to_owned(), answer["embed_ms"].as_f64().unwrap_or(0.0)))
}

fn click(address: SocketAddr, id: &str, number: usize) -> Outcome<()> {
    let (status, answer) = send_click(address, id, number)?;
    if status == 200 { Ok(()) } else { Err(format!("status {status}: {answer}").into()) }
}

fn send_click(address: SocketAddr, id: &str, number: usize) -> Outcome<(u16, Value)> {
    let place = [60 + number * 37 % 500, 60 + number * 53 % 360, 1];
    let body = json!({"points": [place], "outputs": ["rle", "path"], "simplify": 0.6});
    send(address, &format!("/api/v1/images/{id}/segment"), body.to_string().as_bytes())
}

fn send(address: SocketAddr, path: &str, body: &[u8]) -> Outcome<(u16, Value)> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(120)))?;
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(body)?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    let (head, body) = text.split_once("\r\n\r\n").ok_or("no answer")?;
    let status = head.split_whitespace().nth(1).ok_or("no status")?.parse()?;
    Ok((status, serde_json::from_str(body)?))
}

fn milliseconds(start: Instant) -> f64 {
    start.elapsed().as_secs_f64() * 1e3
}

fn report(what: &str, mut times: Vec<f64>) {
    times.sort_by(f64::total_cmp);
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize];
    let (count, median, late, worst) = (times.len(), at(0.5), at(0.95), at(1.0));
    println!("{what}: {count}, median {median:.1} ms, 95 % {late:.1} ms, worst {worst:.1} ms");
}

/// Memory of this process in MiB; 0 where the system does not say.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kilobytes.unwrap_or(0) / 1024
}
