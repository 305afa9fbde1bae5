//! A temporary folder, the binary run in it, and small files to read.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

use cutout_imaging::{Image, Size, encode_image};
use cutout_tensor::Tensor;
use cutout_testing::{SmallSam3, StageFile};
use cutout_weights::{Metadata, OutgoingTensor, write_safetensors};
use serde_json::Value;

use crate::flags;

pub(crate) mod server;

/// Environment variables that tests do not inherit.
const HIDDEN: [&str; 16] = [
    "HF_HOME",
    "HF_HUB_CACHE",
    "HUGGINGFACE_HUB_CACHE",
    "TORCH_HOME",
    "XDG_CACHE_HOME",
    "HF_ENDPOINT",
    "HF_TOKEN",
    "HF_TOKEN_PATH",
    "HF_HUB_OFFLINE",
    "CUTOUT_MIRRORS",
    "ALL_PROXY",
    "all_proxy",
    "HTTP_PROXY",
    "http_proxy",
    "HTTPS_PROXY",
    "https_proxy",
];

/// File name of the small SAM 1.
pub(crate) const MODEL: &str = "model.safetensors";

/// A temporary folder, working directory and home of the commands run in it, removed when dropped.
pub(crate) struct Folder(PathBuf);

/// Exit code and output of a command.
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

pub(crate) fn folder() -> Folder {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let path = std::env::temp_dir().join(format!("cutout-cli-{}-{number}", std::process::id()));
    std::fs::create_dir_all(&path).unwrap();
    Folder(path)
}

/// A folder with the model and a picture of 50 by 31 pixels, `picture.png`.
pub(crate) fn folder_with_model() -> Folder {
    let folder = folder();
    folder.model(MODEL);
    folder.picture("picture.png", Size::new(50, 31));
    folder
}

impl Folder {
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.path(name).exists()
    }

    pub(crate) fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.path(name)).unwrap()
    }

    pub(crate) fn json(&self, name: &str) -> Value {
        serde_json::from_slice(&self.read(name)).unwrap()
    }

    /// Writes a file, creating its folder.
    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }

    /// Writes tensors as a checkpoint.
    pub(crate) fn checkpoint(&self, name: &str, tensors: Vec<(String, Tensor)>) {
        self.write(name, "");
        let tensors = tensors.into_iter().map(|(name, tensor)| OutgoingTensor::new(name, tensor));
        let metadata = Metadata::from([("source".to_owned(), "a test".into())]);
        write_safetensors(self.path(name), &tensors.collect::<Vec<_>>(), &metadata).unwrap();
    }

    /// Writes the small model.
    pub(crate) fn model(&self, name: &str) {
        self.checkpoint(name, model_tensors());
    }

    /// Writes a picture with a pattern.
    pub(crate) fn picture(&self, name: &str, size: Size) {
        let pixel = |i: usize| [(i * 7 % 251) as u8, (i / 3 % 256) as u8, (i * i % 239) as u8];
        let pixels = (0..size.width * size.height).flat_map(pixel).collect();
        self.write(name, encode_image(&Image::from_rgb(size, pixels).unwrap()).unwrap());
    }

    /// The program in this folder, with an environment that hides the user's models.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cutout"));
        command
            .args(flags::without_ignored(arguments))
            .current_dir(&self.0)
            .env("HOME", self.path("home"));
        for name in HIDDEN {
            command.env_remove(name);
        }
        command.stdin(Stdio::null());
        command
    }

    /// Runs the program.
    pub(crate) fn cutout(&self, arguments: &[&str]) -> Ended {
        Ended::of(self.command(arguments).output().unwrap())
    }

    /// Runs `segment picture.png` on the small model with one point and more arguments.
    pub(crate) fn segment(&self, more: &[&str]) -> Ended {
        let always = ["segment", "picture.png", "--model", MODEL, "--point", "20,11"];
        self.cutout(&[&always[..], more].concat())
    }

    /// Runs `segment picture.png` on the small SAM 3 with these arguments.
    pub(crate) fn find(&self, more: &[&str]) -> Ended {
        self.cutout(&[&["segment", "picture.png", "--model", SAM3], more].concat())
    }

    /// Temporary files left in the folder.
    pub(crate) fn temporary_files(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(&self.0).unwrap().map(|entry| entry.unwrap().path());
        entries.filter(|path| is_temporary(path)).collect()
    }
}

fn is_temporary(path: &Path) -> bool {
    path.file_name().unwrap().to_string_lossy().starts_with(".cutout-")
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Ended {
    pub(crate) fn of(output: Output) -> Self {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        Ended {
            code: output.status.code(),
            stdout: text(output.stdout),
            stderr: text(output.stderr),
        }
    }

    /// Standard output of a command that succeeded.
    #[track_caller]
    pub(crate) fn succeeds(self) -> String {
        assert_eq!(self.code, Some(0), "{}{}", self.stdout, self.stderr);
        self.stdout
    }

    /// Standard output of a command that succeeded, with single blanks.
    #[track_caller]
    pub(crate) fn words(self) -> String {
        let squeezed = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        self.succeeds().lines().map(squeezed).collect::<Vec<_>>().join("\n")
    }

    /// Standard output of a command that succeeded, as JSON.
    #[track_caller]
    pub(crate) fn json(self) -> Value {
        serde_json::from_str(&self.succeeds()).unwrap()
    }

    /// Asserts that the command failed with exit code 1 and an error with all of these words.
    #[track_caller]
    pub(crate) fn fails(self, words: &[&str]) {
        self.failed(1, words);
    }

    /// Asserts that the arguments were rejected, with exit code 2 and an error with all of these words.
    #[track_caller]
    pub(crate) fn wrong_usage(self, words: &[&str]) {
        self.failed(2, words);
    }

    #[track_caller]
    fn failed(self, code: i32, words: &[&str]) {
        assert_eq!(self.code, Some(code), "{}{}", self.stdout, self.stderr);
        assert!(self.stderr.contains("error: "), "{}", self.stderr);
        assert!(!self.stderr.contains("panicked"), "{}", self.stderr);
        for word in words {
            assert!(self.stderr.contains(word), "{word:?} is not in: {}", self.stderr);
        }
    }
}

/// The weights of the small model, under Meta's names.
pub(crate) fn model_tensors() -> Vec<(String, Tensor)> {
    let weights = StageFile::load("sam1/wide.safetensors").unwrap().weights();
    let named = |path: &str| (path.to_owned(), weights.get(path).unwrap().tensor().unwrap());
    weights.paths().map(named).collect()
}

/// File name of the small SAM 3.
pub(crate) const SAM3: &str = "sam3.safetensors";

/// A folder with a small SAM 3 that can follow what it finds, and a clip of four frames.
pub(crate) fn folder_with_sam3_clip() -> Folder {
    let folder = folder();
    let weights = SmallSam3::load().unwrap().weights_with_memory().unwrap();
    folder.checkpoint(SAM3, weights.into_iter().collect());
    for number in 0..4 {
        folder.picture(&format!("clip/{number:05}.png"), Size::new(40, 30));
    }
    folder
}

/// A folder with the small SAM 3, a small SAM 1 and a picture of 50 by 31 pixels, `picture.png`.
pub(crate) fn folder_with_sam3() -> Folder {
    let folder = folder_with_model();
    let weights = SmallSam3::load().unwrap().weights().unwrap();
    folder.checkpoint(SAM3, weights.into_iter().collect());
    folder
}

/// A committed checkpoint.
pub(crate) fn fixture(name: &str) -> Vec<u8> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/checkpoints");
    std::fs::read(folder.join(name)).unwrap()
}
