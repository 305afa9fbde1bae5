//! From the bytes of a request to the frames of a clip.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use axum::body::Bytes;
use cutout_imaging::{DecodeLimits, decode};
use cutout_video::{OpenOptions, StopHandle, Tools, VideoError, VideoLimits, open};

use super::frames::{FrameWriter, Frames, disk};
use super::lock;
use crate::options::Limits;
use crate::problem::Problem;

/// Name of the file that was sent, as long as it is read.
const SENT: &str = "sent";

/// What a client sends.
pub(crate) enum Upload {
    /// An animation, a zip archive of pictures, or a video that `ffmpeg` reads.
    File(Bytes),
    /// Pictures in their order.
    Pictures(Vec<Bytes>),
}

/// Reads a clip; stopped from another thread when it is dropped there.
#[derive(Clone, Default)]
pub(crate) struct Recording {
    is_stopped: Arc<AtomicBool>,
    source: Arc<Mutex<Option<StopHandle>>>,
}

impl Recording {
    /// Ends the reading, also while it waits for another program.
    pub(crate) fn stop(&self) {
        self.is_stopped.store(true, Ordering::Relaxed);
        if let Some(source) = &*lock(&self.source) {
            source.stop();
        }
    }

    fn check(&self) -> Result<(), Problem> {
        if self.is_stopped.load(Ordering::Relaxed) { Err(Problem::Gone) } else { Ok(()) }
    }

    /// Reads what was sent into frames.
    pub(crate) fn record(
        &self,
        upload: Upload,
        tools: Tools,
        limits: &Limits,
    ) -> Result<Frames, Problem> {
        let mut writer = FrameWriter::new(limits.clip_frames, limits.clip_bytes)?;
        let picture =
            DecodeLimits { pixels: limits.pixels, file_bytes: limits.clip_body_bytes as u64 };
        let file = match upload {
            Upload::Pictures(mut pictures) if pictures.len() == 1 => pictures.remove(0),
            Upload::File(file) => file,
            Upload::Pictures(pictures) => {
                for (index, bytes) in pictures.iter().enumerate() {
                    self.check()?;
                    writer.add(&decode(bytes, &format!("picture {index}"), &picture)?)?;
                }
                return writer.finish(None);
            }
        };
        let path = writer.path(SENT);
        std::fs::write(&path, &file).map_err(|error| disk(&error))?;
        drop(file);
        let limits = VideoLimits { picture, animation_frames: limits.clip_frames };
        let options = OpenOptions { tools, limits, raw: None, is_untrusted: true };
        let named = |error: VideoError| {
            // The path of the temporary file says nothing to the client.
            let text = error.to_string();
            Problem::Invalid(text.replace(&path.display().to_string(), "the clip"))
        };
        let source = open(&path, &options).map_err(named)?;
        *lock(&self.source) = source.stop_handle();
        let rate = source.frame_rate();
        for frame in source {
            self.check()?;
            writer.add(&frame.map_err(named)?)?;
        }
        self.check()?;
        std::fs::remove_file(&path).map_err(|error| disk(&error))?;
        writer.finish(rate)
    }
}
