//! `cutout pull`, against servers on this machine.

use std::fs::{self, File};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use ring::digest::{SHA256, digest};

use crate::support::server::{Asked, Reply, Server};
use crate::support::{Ended, Folder, folder};

const NAME: &str = "me/model/weights.safetensors";
const FILE: &str = "/me/model/resolve/main/weights.safetensors";
const CACHE: &str = "home/.cache/huggingface/hub/models--me--model";
const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";
const TOKEN: &str = "hf_secretSECRETsecret";

fn sha256(content: &[u8]) -> String {
    digest(&SHA256, content).as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A checkpoint that `cutout models` finds.
fn checkpoint() -> Vec<u8> {
    let folder = folder();
    folder.model("model.safetensors");
    folder.read("model.safetensors")
}

/// The headers of the hub for a file.
fn described(reply: Reply, content: &[u8]) -> Reply {
    reply
        .header("x-repo-commit", COMMIT)
        .header("x-linked-etag", format!("\"{}\"", sha256(content)))
        .header("x-linked-size", content.len().to_string())
}

/// A correct answer: the file, or the byte range that was asked for.
fn served(asked: &Asked, content: &[u8]) -> Reply {
    match asked.start() {
        Some(start) => {
            let range = format!("bytes {start}-{}/{}", content.len() - 1, content.len());
            Reply::new(206).header("content-range", range).body(&content[start..])
        }
        None => Reply::new(200).body(content),
    }
}

/// A hub that serves one file itself.
fn hub(content: &[u8]) -> Server {
    let content = content.to_vec();
    Server::start(move |asked| match asked.path.as_str() {
        FILE => described(served(asked, &content), &content),
        _ => Reply::new(404),
    })
}

/// A hub that describes one file honestly and answers GET with `get`.
fn hub_with(
    content: &[u8],
    get: impl Fn(&Asked, &[u8]) -> Reply + Send + Sync + 'static,
) -> Server {
    let content = content.to_vec();
    Server::start(move |asked| match asked.method.as_str() {
        "HEAD" => {
            described(Reply::new(200).header("content-length", content.len().to_string()), &content)
        }
        _ => get(asked, &content),
    })
}

/// `cutout pull` of the file, with a hub.
fn command(folder: &Folder, hub: &Server, more: &[&str]) -> Command {
    let mut command = folder.command(&[&["pull", NAME], more].concat());
    command.env("HF_ENDPOINT", &hub.address);
    command
}

fn pull(folder: &Folder, hub: &Server, more: &[&str]) -> Ended {
    Ended::of(command(folder, hub, more).output().unwrap())
}

fn blob(content: &[u8]) -> String {
    format!("{CACHE}/blobs/{}", sha256(content))
}

fn part(content: &[u8]) -> String {
    blob(content) + ".incomplete"
}

fn methods(server: &Server) -> Vec<String> {
    server.asked().into_iter().map(|asked| asked.method).collect()
}

#[test]
fn a_file_goes_to_the_cache_of_hugging_face() {
    let (folder, content) = (folder(), checkpoint());
    let cdn = {
        let content = content.clone();
        Server::start(move |asked| served(asked, &content))
    };
    let target = format!("{}/blob?signature=s3cret", cdn.address);
    let hub = {
        let content = content.clone();
        Server::start(move |_| {
            described(Reply::new(302).header("location", target.as_str()), &content)
        })
    };
    let ended = Ended::of(command(&folder, &hub, &[]).env("HF_TOKEN", TOKEN).output().unwrap());
    for text in [&ended.stdout, &ended.stderr] {
        assert!(!text.contains(TOKEN) && !text.contains("s3cret"), "{text}");
    }
    let snapshot = format!("{CACHE}/snapshots/{COMMIT}/weights.safetensors");
    assert_eq!(ended.succeeds().trim_end(), folder.path(&snapshot).display().to_string());
    assert_eq!(folder.read(&snapshot), content);
    assert_eq!(folder.read(&blob(&content)), content);
    assert_eq!(folder.read(&format!("{CACHE}/refs/main")), COMMIT.as_bytes());
    assert!(!folder.has(&part(&content)));
    #[cfg(unix)]
    assert_eq!(
        fs::read_link(folder.path(&snapshot)).unwrap().display().to_string(),
        format!("../../blobs/{}", sha256(&content))
    );
    // The hub got the token, and is not asked for the content; the host of the content did not get it.
    let authorized = |server: &Server| {
        let asked = server.asked();
        assert!(!asked.is_empty());
        asked.iter().filter(|asked| asked.header("authorization").is_some()).count()
    };
    assert_eq!(authorized(&hub), hub.asked().len());
    assert_eq!(hub.asked()[0].header("authorization"), Some(&*format!("Bearer {TOKEN}")));
    assert_eq!((authorized(&cdn), methods(&cdn)), (0, vec!["GET".to_owned()]));
    // It is found by the other commands, and not fetched again.
    assert!(folder.cutout(&["models"]).succeeds().contains("weights.safetensors"));
    folder.cutout(&["info", "weights.safetensors"]).succeeds();
    let before = hub.asked().len();
    let again = pull(&folder, &hub, &[]);
    assert!(again.stderr.contains("is here already"), "{}", again.stderr);
    again.succeeds();
    assert_eq!(hub.asked().len(), before);
}

#[test]
fn content_that_another_program_fetched_is_linked() {
    let (folder, content) = (folder(), checkpoint());
    folder.write(&blob(&content), &content);
    let hub = hub(&content);
    pull(&folder, &hub, &[]).succeeds();
    assert_eq!(methods(&hub), ["HEAD"]);
    assert_eq!(folder.read(&format!("{CACHE}/snapshots/{COMMIT}/weights.safetensors")), content);
    // A snapshot of another program needs no connection at all.
    let other = crate::support::folder();
    other.write(&format!("{CACHE}/refs/main"), COMMIT);
    other.write(&format!("{CACHE}/snapshots/{COMMIT}/weights.safetensors"), &content);
    other.cutout(&["pull", NAME, "--offline"]).succeeds();
}

#[test]
pub(crate) fn a_broken_download_goes_on() {
    let (folder, content) = (folder(), checkpoint());
    let half = content.len() / 2;
    // The first answer ends early.
    let hub = hub_with(&content, move |asked, content| match asked.earlier {
        0 => Reply { length: Some(content.len()), ..Reply::new(200).body(&content[..half]) },
        _ => served(asked, content),
    });
    pull(&folder, &hub, &["--retries", "0"]).fails(&["127.0.0.1", "connection"]);
    assert_eq!(folder.read(&part(&content)), content[..half]);
    assert!(!folder.has(&blob(&content)));
    let ended = pull(&folder, &hub, &[]);
    assert!(ended.stderr.contains("going on after"), "{}", ended.stderr);
    ended.succeeds();
    assert_eq!(hub.asked().last().unwrap().start(), Some(half));
    assert_eq!(folder.read(&blob(&content)), content);
    // The same in one command.
    let (other, hub) = (
        crate::support::folder(),
        hub_with(&content, move |asked, content| match asked.earlier {
            0 => Reply { length: Some(content.len()), ..Reply::new(200).body(&content[..half]) },
            1 => Reply::new(503),
            _ => served(asked, content),
        }),
    );
    let ended = pull(&other, &hub, &["--retries", "2"]);
    assert!(ended.stderr.contains("trying again"), "{}", ended.stderr);
    ended.succeeds();
    assert_eq!(other.read(&blob(&content)), content);
}

#[test]
#[cfg(unix)]
fn ctrl_c_keeps_what_arrived() {
    use crate::interrupted::{interrupt, wait_until};
    let (folder, content) = (folder(), checkpoint());
    let hub = hub_with(&content, |asked, content| match asked.earlier {
        0 => Reply { pause: Duration::from_millis(300), pieces: 200, ..served(asked, content) },
        _ => served(asked, content),
    });
    let mut command = command(&folder, &hub, &[]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let length = || fs::metadata(folder.path(&part(&content))).map_or(0, |found| found.len());
    wait_until("a first piece", || length() > 0);
    let ended = interrupt(child);
    assert_eq!(ended.code, Some(130), "{}", ended.stderr);
    assert!(ended.stderr.contains("goes on from there"), "{}", ended.stderr);
    let kept = length();
    assert!(kept > 0 && kept < content.len() as u64);
    pull(&folder, &hub, &[]).succeeds();
    assert_eq!(hub.asked().last().unwrap().start(), Some(kept as usize));
    assert_eq!(folder.read(&blob(&content)), content);
}

#[test]
fn wrong_content_is_removed() {
    let (folder, content) = (folder(), checkpoint());
    let hub = hub_with(&content, |asked, content| {
        let mut wrong = content.to_vec();
        wrong[1000] ^= 1;
        served(asked, &wrong)
    });
    pull(&folder, &hub, &[]).fails(&["damaged or replaced", &sha256(&content)]);
    assert!(!folder.has(&part(&content)) && !folder.has(&blob(&content)));
    assert!(!folder.has(&format!("{CACHE}/snapshots")));
    // A damaged part file is noticed too.
    let honest = hub_with(&content, served);
    folder.write(&part(&content), vec![7; 1000]);
    pull(&folder, &honest, &[]).fails(&["damaged or replaced"]);
    pull(&folder, &honest, &[]).succeeds();
}

#[test]
fn lengths_that_disagree_are_errors() {
    let content = checkpoint();
    fn longer(content: &[u8]) -> Vec<u8> {
        [content, &[0; 100_000]].concat()
    }
    let chunked = |asked: &Asked, content: &[u8]| {
        let body = longer(content);
        let mut text = format!("{:x}\r\n", body.len()).into_bytes();
        text.extend(&body);
        text.extend(b"\r\n0\r\n\r\n");
        let _ = asked;
        Reply::new(200).header("transfer-encoding", "chunked").body(text)
    };
    let cases: [(&str, Server); 3] = [
        (
            "announces more",
            hub_with(&content, move |_, content| Reply::new(200).body(longer(content))),
        ),
        ("announces less", hub_with(&content, |_, content| Reply::new(200).body(&content[1..]))),
        ("sends more", hub_with(&content, chunked)),
    ];
    for (what, hub) in cases {
        let folder = folder();
        let ended = pull(&folder, &hub, &["--retries", "0"]);
        assert!(ended.stderr.contains("bytes"), "{what}: {}", ended.stderr);
        ended.fails(&["expected"]);
        let length = fs::metadata(folder.path(&part(&content))).map_or(0, |found| found.len());
        assert!(length <= content.len() as u64, "{what}: {length} bytes were written");
        assert!(!folder.has(&blob(&content)), "{what}");
    }
    // A size that no disk has is refused before anything is fetched.
    let hub = Server::start(|_| {
        Reply::new(200)
            .header("x-linked-etag", "ab".repeat(32))
            .header("x-linked-size", (1u64 << 60).to_string())
    });
    pull(&folder(), &hub, &[]).fails(&["1024.0 PiB are needed", "are free"]);
    assert_eq!(methods(&hub), ["HEAD"]);
}

#[test]
fn files_without_digest_or_size_are_refused() {
    let sha1 =
        Server::start(|_| Reply::new(200).header("etag", "\"0123456789abcdef0123\"").body("x"));
    pull(&folder(), &sha1, &[]).fails(&["publishes no SHA-256"]);
    let endless = Server::start(|_| {
        Reply::new(200).header("etag", "ab".repeat(32)).header("transfer-encoding", "chunked")
    });
    pull(&folder(), &endless, &[]).fails(&["does not say how long"]);
}

#[test]
fn ranges_that_are_ignored_or_refused() {
    let content = checkpoint();
    let whole = |_: &Asked, content: &[u8]| Reply::new(200).body(content);
    let refused = |asked: &Asked, content: &[u8]| match asked.start() {
        Some(_) => Reply::new(416),
        None => Reply::new(200).body(content),
    };
    let wrong_start = |asked: &Asked, content: &[u8]| match asked.start() {
        Some(_) => Reply::new(206)
            .header("content-range", format!("bytes 5-{0}/{0}", content.len()))
            .body(&content[5..]),
        None => Reply::new(200).body(content),
    };
    let hubs =
        [hub_with(&content, whole), hub_with(&content, refused), hub_with(&content, wrong_start)];
    for hub in hubs {
        let folder = folder();
        folder.write(&part(&content), &content[..1000]);
        pull(&folder, &hub, &[]).succeeds();
        assert_eq!(folder.read(&blob(&content)), content);
    }
    // A part file that is too long is not trusted.
    let (folder, hub) = (folder(), hub(&content));
    folder.write(&part(&content), [&content[..], b"more"].concat());
    pull(&folder, &hub, &[]).succeeds();
    assert_eq!(folder.read(&blob(&content)), content);
}

#[test]
fn statuses_say_what_to_do() {
    let status = |status: u16| Server::start(move |_| Reply::new(status));
    let page = |hub: &Server| format!("visit {}/me/model and accept", hub.address);
    let hub = status(401);
    pull(&folder(), &hub, &[]).fails(&["401", &page(&hub), "HF_TOKEN", "/settings/tokens"]);
    let refused = Ended::of(command(&folder(), &hub, &[]).env("HF_TOKEN", TOKEN).output().unwrap());
    assert!(!refused.stderr.contains(TOKEN), "{}", refused.stderr);
    refused.fails(&["401", "does not accept the token", &page(&hub)]);
    let hub = status(403);
    pull(&folder(), &hub, &[]).fails(&["403", &page(&hub), "gated", "HF_TOKEN"]);
    pull(&folder(), &status(404), &[]).fails(&[FILE, "no such file (404)"]);
    pull(&folder(), &status(418), &[]).fails(&["unexpected answer 418"]);
    let broken = status(500);
    pull(&folder(), &broken, &["--retries", "1"]).fails(&["cannot answer now (500)"]);
    assert_eq!(methods(&broken), ["HEAD", "HEAD"]);
    let content = checkpoint();
    let busy = hub_with(&content, |asked, content| match asked.earlier {
        0 => Reply::new(429).header("retry-after", "1"),
        _ => served(asked, content),
    });
    let ended = pull(&folder(), &busy, &["--retries", "1"]);
    assert!(
        ended.stderr.contains("(429); try again later; trying again in 1.0 s"),
        "{}",
        ended.stderr
    );
    ended.succeeds();
    let gone = hub_with(&content, |_, _| Reply::new(500));
    pull(&folder(), &gone, &["--retries", "1"]).fails(&["cannot answer now (500)"]);
    assert_eq!(methods(&gone), ["HEAD", "GET", "GET"]);
}

#[test]
fn the_token_comes_from_the_file_of_hugging_face() {
    let (folder, content) = (folder(), checkpoint());
    folder.write("home/.cache/huggingface/token", format!("{TOKEN}\n"));
    let hub = hub(&content);
    pull(&folder, &hub, &[]).succeeds();
    assert_eq!(hub.asked()[0].header("authorization"), Some(&*format!("Bearer {TOKEN}")));
}

#[test]
fn redirects_are_limited() {
    let round = Server::start(|asked| Reply::new(302).header("location", asked.path.clone()));
    pull(&folder(), &round, &[]).fails(&["more than 8 redirects"]);
    assert!(round.asked().len() < 12);
    for (location, words) in [
        ("ftp://127.0.0.1/x", "not an http or https address"),
        ("http:///nowhere", "not an http or https address"),
    ] {
        let hub = Server::start(move |_| Reply::new(302).header("location", location));
        pull(&folder(), &hub, &[]).fails(&["redirects to an address that is not followed", words]);
    }
    let silent = Server::start(|_| Reply::new(302));
    pull(&folder(), &silent, &[]).fails(&["it is not given"]);
    // What another host says about the file does not count.
    let content = checkpoint();
    let elsewhere = hub(&content);
    let target = format!("{}{FILE}", elsewhere.address);
    let moved = Server::start(move |_| Reply::new(302).header("location", target.as_str()));
    pull(&folder(), &moved, &[]).fails(&["publishes no SHA-256"]);
}

#[test]
pub(crate) fn silent_and_slow_hosts_are_given_up() {
    let content = checkpoint();
    let silent = hub_with(&content, |asked, content| Reply {
        pause: Duration::from_secs(3),
        pieces: 2,
        ..served(asked, content)
    });
    let start = Instant::now();
    let ended = pull(&folder(), &silent, &["--timeout", "1", "--retries", "0"]);
    ended.fails(&["127.0.0.1", "no data in time"]);
    assert!(start.elapsed() < Duration::from_millis(2900), "{:?}", start.elapsed());
    // A few bytes now and then do not count as an answer.
    let trickle = hub_with(&content, |_, content| Reply {
        pause: Duration::from_millis(100),
        pieces: 40,
        length: Some(content.len()),
        ..Reply::new(200).body(&content[..40])
    });
    let ended = pull(&folder(), &trickle, &["--timeout", "1", "--retries", "0"]);
    ended.fails(&["sent less than 1.0 KiB in 1 s"]);
    let mute = Server::start(|_| {
        std::thread::sleep(Duration::from_secs(3));
        Reply::new(200)
    });
    pull(&folder(), &mute, &["--timeout", "1"]).fails(&["no answer in time"]);
}

#[test]
fn hosts_that_cannot_be_reached() {
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let folder = folder();
    let with = |endpoint: &str| {
        let mut command = folder.command(&["pull", NAME]);
        Ended::of(command.env("HF_ENDPOINT", endpoint).output().unwrap())
    };
    with(&format!("http://{closed}")).fails(&["127.0.0.1"]);
    with("not an address").fails(&["HF_ENDPOINT", "not the address of a host"]);
}

#[test]
pub(crate) fn mirrors_are_asked_first() {
    let (folder, content) = (folder(), checkpoint());
    let (origin, mirror) = (hub(&content), hub(&content));
    let mut first = command(&folder, &origin, &["--mirror", &mirror.address]);
    Ended::of(first.env("HF_TOKEN", TOKEN).output().unwrap()).succeeds();
    assert_eq!(methods(&origin), [""; 0]);
    assert_eq!(methods(&mirror), ["HEAD", "GET"]);
    assert!(mirror.asked().iter().all(|asked| asked.header("authorization").is_none()));
    // A mirror without the file, then a list in the environment.
    let (other, empty) = (crate::support::folder(), Server::start(|_| Reply::new(404)));
    let list = format!("{}, {}", empty.address, mirror.address);
    let ended =
        Ended::of(command(&other, &origin, &[]).env("CUTOUT_MIRRORS", list).output().unwrap());
    assert!(ended.stderr.contains("no such file (404); trying the next host"), "{}", ended.stderr);
    ended.succeeds();
    assert_eq!(methods(&origin), [""; 0]);
    assert_eq!(other.read(&blob(&content)), content);
    let wrong = command(&other, &origin, &["--mirror", "models.example.org"]).output().unwrap();
    assert_eq!(wrong.status.code(), Some(0), "it is here already");
    let third = crate::support::folder();
    pull(&third, &origin, &["--mirror", "models.example.org"])
        .fails(&["not the address of a host"]);
}

#[test]
pub(crate) fn offline_opens_no_connection() {
    let (folder, content) = (folder(), checkpoint());
    let hub = hub(&content);
    pull(&folder, &hub, &["--offline"])
        .fails(&["weights.safetensors: not on this machine", "--offline"]);
    let variable = command(&folder, &hub, &[]).env("HF_HUB_OFFLINE", "1").output().unwrap();
    Ended::of(variable).fails(&["HF_HUB_OFFLINE"]);
    assert!(hub.asked().is_empty());
    assert!(!folder.has("home"));
}

#[test]
fn two_downloads_of_one_file_do_not_meet() {
    let (folder, content) = (folder(), checkpoint());
    let lock =
        format!("home/.cache/huggingface/hub/.locks/models--me--model/{}.lock", sha256(&content));
    folder.write(&lock, "");
    let file = File::options().write(true).open(folder.path(&lock)).unwrap();
    file.lock().unwrap();
    let hub = hub(&content);
    pull(&folder, &hub, &[]).fails(&["another program is fetching this file"]);
    drop(file);
    pull(&folder, &hub, &[]).succeeds();
}
