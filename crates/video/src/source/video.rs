//! Video files, decoded by `ffmpeg`.

use std::ffi::{OsStr, OsString};
use std::io::{self, BufReader, Read};
use std::path::Path;
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use cutout_imaging::Image;

use super::ppm::PpmFrames;
use super::probe::{self, Facts};
use super::{OpenOptions, VideoLimits};
use crate::process::{Ending, Process, capture};
use crate::{FrameSource, StopHandle, VideoError};

/// Time for `ffmpeg` to exit after its last frame.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Time for `ffmpeg` to exit after it has written something other than a frame.
const SHORT_TIMEOUT: Duration = Duration::from_millis(200);

/// Names that `ffmpeg` gives to the formats that are read from strangers.
const CONTAINERS: &str = "mov,mp4,m4a,3gp,3g2,mj2,matroska,webm,avi";

/// Frames decoded by `ffmpeg` and read through a pipe.
pub(super) struct Video {
    frames: PpmFrames<BufReader<ChildStdout>>,
    process: Arc<Process>,
    facts: Facts,
    /// Error of the reader that feeds the standard input of `ffmpeg`.
    feeding: Arc<Mutex<Option<io::Error>>>,
    ended: bool,
}

impl Video {
    /// Opens a file. `ffmpeg` decodes it from the start, as fast as frames are taken.
    pub(super) fn open(path: &Path, options: &OpenOptions) -> Result<Self, VideoError> {
        let name = path.display().to_string();
        let mut video = Video::start(&file_url(path), &name, options, Stdio::null())?.0;
        if let Some(ffprobe) = &options.tools.ffprobe {
            video.facts = probe::probe(ffprobe, &file_url(path));
        }
        Ok(video)
    }

    /// Reads a video from a stream. Formats that need seeking cannot be read this way.
    #[expect(clippy::disallowed_methods, reason = "copies into a pipe, computes nothing")]
    pub(super) fn from_reader(
        mut reader: Box<dyn Read + Send>,
        name: &str,
        options: &OpenOptions,
    ) -> Result<Self, VideoError> {
        let (video, input) = Video::start(OsStr::new("pipe:0"), name, options, Stdio::piped())?;
        let feeding = Arc::clone(&video.feeding);
        if let Some(mut input) = input {
            let feed = move || {
                let failed = feed(&mut reader, &mut input).err();
                *feeding.lock().unwrap_or_else(PoisonError::into_inner) = failed;
            };
            let started = thread::Builder::new().name("feed ffmpeg".into()).spawn(feed);
            started.map_err(|source| VideoError::Read { name: name.into(), source })?;
        }
        Ok(video)
    }

    fn start(
        url: &OsStr,
        name: &str,
        options: &OpenOptions,
        input: Stdio,
    ) -> Result<(Self, Option<ChildStdin>), VideoError> {
        let Some(program) = &options.tools.ffmpeg else {
            return Err(VideoError::NoFfmpeg { name: name.into() });
        };
        let cannot_start = |source| VideoError::Start { program: program.clone(), source };
        let version = capture(Command::new(program).arg("-version")).map_err(cannot_start)?;
        let mut command = Command::new(program);
        command.args(["-nostdin", "-v", "error"]);
        if options.is_untrusted {
            command.args(["-protocol_whitelist", "file,pipe", "-format_whitelist", CONTAINERS]);
        } else {
            // A playlist may open local files only.
            command.args(["-protocol_whitelist", "file,pipe,crypto,data"]);
        }
        command.arg("-i").arg(url);
        // The first video stream that is not a cover image. Every frame once, for variable frame rates too.
        command.args(["-map", "0:V:0"]).args(probe::every_frame_once(&version));
        command.args(["-f", "image2pipe", "-c:v", "ppm", "-pix_fmt", "rgb24", "pipe:1"]);
        command.stdin(input).stdout(Stdio::piped());
        let (process, pipes) = Process::start(&mut command).map_err(cannot_start)?;
        let output = pipes.output.ok_or_else(|| cannot_start(io::ErrorKind::BrokenPipe.into()))?;
        let video = Video {
            frames: frames(output, name, options.limits),
            process,
            facts: Facts::default(),
            feeding: Arc::default(),
            ended: false,
        };
        Ok((video, pipes.input))
    }

    /// The error after the last frame; `None` if `ffmpeg` succeeded. `failure` is the error of the stream itself.
    fn end(&self, failure: Option<VideoError>) -> Option<VideoError> {
        let exhausted = self.frames.is_exhausted();
        let patience = match &failure {
            None => TIMEOUT,
            Some(VideoError::Truncated { .. } | VideoError::Stream { .. }) if exhausted => TIMEOUT,
            Some(VideoError::Stream { .. } | VideoError::Read { .. }) => SHORT_TIMEOUT,
            // Frames beyond a limit or of different sizes: this error takes precedence over those of `ffmpeg`.
            Some(_) => {
                self.process.stop();
                return failure;
            }
        };
        let ending = self.process.wait(patience);
        let feeding = self.feeding.lock().unwrap_or_else(PoisonError::into_inner).take();
        let (name, frames) = (self.name().to_owned(), self.frames.delivered());
        if let Some(source) = feeding {
            return Some(VideoError::Read { name, source });
        }
        let Ending { status, said } = &ending;
        let said = said.clone();
        let failed = status.is_some() && !ending.is_success();
        match failure {
            None if ending.is_success() && said.is_empty() => {
                (frames == 0).then_some(VideoError::NoFrames { name })
            }
            Some(failure) if said.is_empty() && !failed => Some(failure),
            Some(_) | None if ending.is_success() => {
                Some(VideoError::Damaged { name, frames, said })
            }
            Some(_) | None => {
                Some(VideoError::Ffmpeg { name, frames, ending: ending.to_string(), said })
            }
        }
    }
}

fn frames(
    output: ChildStdout,
    name: &str,
    limits: VideoLimits,
) -> PpmFrames<BufReader<ChildStdout>> {
    PpmFrames::new(BufReader::new(output), name.into(), limits)
}

/// The path as a `file:` URL, which cannot be mistaken for an option or another protocol.
pub(crate) fn file_url(path: &Path) -> OsString {
    let mut url = OsString::from("file:");
    url.push(path);
    url
}

/// Copies until either side ends. Returns errors of the reader; a closed input of `ffmpeg` is not an error.
fn feed(reader: &mut dyn Read, input: &mut ChildStdin) -> io::Result<()> {
    let mut chunk = vec![0; 64 << 10];
    loop {
        match reader.read(&mut chunk) {
            Ok(0) => return Ok(()),
            Ok(length) => {
                if io::Write::write_all(input, &chunk[..length]).is_err() {
                    return Ok(());
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

impl Iterator for Video {
    type Item = Result<Image, VideoError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        match self.frames.next() {
            Some(Ok(image)) => Some(Ok(image)),
            Some(Err(failure)) => {
                self.ended = true;
                self.end(Some(failure)).map(Err)
            }
            None => {
                self.ended = true;
                self.end(None).map(Err)
            }
        }
    }
}

impl FrameSource for Video {
    fn name(&self) -> &str {
        self.frames.name()
    }

    fn length(&self) -> Option<usize> {
        self.facts.length
    }

    fn frame_rate(&self) -> Option<f64> {
        self.facts.frame_rate
    }

    fn stop_handle(&self) -> Option<StopHandle> {
        Some(StopHandle::new(&self.process))
    }
}

impl Drop for Video {
    fn drop(&mut self) {
        // The program ends with the source, even if stop handles are still alive.
        self.process.stop();
    }
}
