//! Overlays as video files, encoded by `ffmpeg`.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use cutout_imaging::{Size, WriteError};

use super::overlay::{OverlayOptions, draw};
use super::{FrameResult, Sink};
use crate::SinkError;
use crate::process::{Ending, Process};
use crate::source::file_url;

/// Time for `ffmpeg` to write its buffered frames and exit.
const EXIT_TIMEOUT: Duration = Duration::from_secs(120);

/// Codec and container of a video file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Encoding {
    /// H.264 in the container with this name.
    H264(&'static str),
    /// VP9 in WebM, which does not allow H.264.
    Vp9,
}

impl Encoding {
    pub(super) fn of(extension: &str) -> Option<Self> {
        match extension {
            "mp4" => Some(Encoding::H264("mp4")),
            "mov" => Some(Encoding::H264("mov")),
            "mkv" => Some(Encoding::H264("matroska")),
            "webm" => Some(Encoding::Vp9),
            _ => None,
        }
    }

    fn arguments(self) -> Vec<&'static str> {
        match self {
            Encoding::H264(container) => {
                vec!["-c:v", "libx264", "-preset", "veryfast", "-crf", "18", "-f", container]
            }
            Encoding::Vp9 => vec![
                "-c:v",
                "libvpx-vp9",
                "-deadline",
                "realtime",
                "-cpu-used",
                "5",
                "-crf",
                "24",
                "-b:v",
                "0",
                "-f",
                "webm",
            ],
        }
    }
}

/// Writes a video file. It is complete when the sink is finished or dropped, and also if this process dies: `ffmpeg` then
/// reads the end of its input and closes the file.
pub(super) struct OverlayVideo {
    path: PathBuf,
    program: PathBuf,
    encoding: Encoding,
    frame_rate: f64,
    running: Option<Running>,
    frames: usize,
}

struct Running {
    process: Arc<Process>,
    input: Option<ChildStdin>,
    size: Size,
}

impl OverlayVideo {
    pub(super) fn create(
        path: &Path,
        encoding: Encoding,
        options: &OverlayOptions,
    ) -> Result<Self, SinkError> {
        let path = path.to_owned();
        let Some(program) = options.tools.ffmpeg.clone() else {
            return Err(SinkError::NoFfmpeg { path });
        };
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        if folder.is_some_and(|folder| !folder.is_dir()) {
            return Err(WriteError::NoFolder(path).into());
        }
        let frame_rate = options.frame_rate;
        Ok(OverlayVideo { path, program, encoding, frame_rate, running: None, frames: 0 })
    }

    fn start(&self, size: Size) -> Result<Running, SinkError> {
        let mut command = Command::new(&self.program);
        command.args(["-nostdin", "-v", "error", "-y", "-f", "rawvideo", "-pix_fmt", "rgb24"]);
        command.args(["-s", &format!("{}x{}", size.width, size.height)]);
        command.args(["-r", &self.frame_rate.to_string(), "-i", "pipe:0"]);
        // Chroma is stored at half resolution, so width and height must be even. Players expect BT.709 colours.
        command.args([
            "-vf",
            "pad=ceil(iw/2)*2:ceil(ih/2)*2,scale=out_color_matrix=bt709:out_range=tv",
        ]);
        command.args(["-pix_fmt", "yuv420p", "-colorspace", "bt709", "-color_primaries", "bt709"]);
        command.args(["-color_trc", "bt709", "-color_range", "tv"]).args(self.encoding.arguments());
        command.arg(file_url(&self.path)).stdin(Stdio::piped()).stdout(Stdio::null());
        let (process, pipes) = Process::start(&mut command)
            .map_err(|source| SinkError::Start { program: self.program.clone(), source })?;
        Ok(Running { process, input: pipes.input, size })
    }

    /// Closes the input and waits until the file is complete.
    fn complete(&mut self) -> Result<(), SinkError> {
        let Some(mut running) = self.running.take() else { return Ok(()) };
        drop(running.input.take());
        let ending = running.process.wait(EXIT_TIMEOUT);
        if ending.is_success() { Ok(()) } else { Err(self.failed(ending)) }
    }

    fn failed(&self, ending: Ending) -> SinkError {
        SinkError::Ffmpeg {
            path: self.path.clone(),
            frames: self.frames,
            ending: ending.to_string(),
            said: ending.said,
        }
    }
}

impl Sink for OverlayVideo {
    fn write(&mut self, frame: &FrameResult<'_>) -> Result<(), SinkError> {
        let found = frame.image.size();
        if self.running.is_none() {
            self.running = Some(self.start(found)?);
        }
        let picture = draw(frame)?;
        let Some(running) = &mut self.running else { unreachable!("it was started above") };
        let expected = running.size;
        if expected != found {
            let (path, frame) = (self.path.clone(), frame.index);
            return Err(SinkError::FrameSize { path, frame, expected, found });
        }
        let written = running.input.as_mut().map(|input| input.write_all(picture.as_rgb()));
        if matches!(written, Some(Ok(()))) {
            self.frames += 1;
            return Ok(());
        }
        // `ffmpeg` has exited and closed the pipe; its standard error says why.
        running.input = None;
        let ending = running.process.wait(EXIT_TIMEOUT);
        Err(self.failed(ending))
    }

    fn finish(mut self: Box<Self>) -> Result<(), SinkError> {
        self.complete()
    }
}

impl Drop for OverlayVideo {
    fn drop(&mut self) {
        // Errors are reported by `finish` only.
        let _ignored = self.complete();
    }
}
