//! The next frame is decoded while the model works on this one.

use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

use cutout_imaging::Image;

use crate::{FrameSource, IndexedFrames, StopHandle, VideoError};

/// Frames that wait for the model: one to take and one being made behind it is enough to keep both busy.
const WAITING: usize = 2;

/// A source whose frames are made on a thread of their own, at most two ahead (and one in the making).
///
/// Dropping it does not wait for the thread; a program that makes the frames is killed and reaped at once.
pub struct Prefetch {
    name: String,
    length: Option<usize>,
    frame_rate: Option<f64>,
    indexed: Option<Arc<dyn IndexedFrames>>,
    stop: Option<StopHandle>,
    frames: Option<Receiver<Result<Image, VideoError>>>,
    worker: Option<JoinHandle<()>>,
}

impl Prefetch {
    /// Starts to decode.
    #[expect(clippy::disallowed_methods, reason = "waits for input, computes nothing in parallel")]
    pub fn new(source: Box<dyn FrameSource>) -> Result<Self, VideoError> {
        let (sender, receiver) = sync_channel(WAITING);
        let name = source.name().to_owned();
        let (length, frame_rate) = (source.length(), source.frame_rate());
        let (indexed, stop) = (source.indexed(), source.stop_handle());
        let worker = thread::Builder::new()
            .name("frames".into())
            .spawn(move || send(source, &sender))
            .map_err(|source| VideoError::Read { name: name.clone(), source })?;
        let (frames, worker) = (Some(receiver), Some(worker));
        Ok(Prefetch { name, length, frame_rate, indexed, stop, frames, worker })
    }
}

/// Sends frames until there are no more or nobody takes them.
fn send(source: Box<dyn FrameSource>, sender: &SyncSender<Result<Image, VideoError>>) {
    for frame in source {
        if sender.send(frame).is_err() {
            return;
        }
    }
}

impl Iterator for Prefetch {
    type Item = Result<Image, VideoError>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Ok(frame) = self.frames.as_ref()?.recv() {
            return Some(frame);
        }
        self.frames = None;
        // A panic in the source must not look like the end of the clip.
        if let Some(Err(panic)) = self.worker.take().map(JoinHandle::join) {
            resume_unwind(panic);
        }
        None
    }
}

impl FrameSource for Prefetch {
    fn name(&self) -> &str {
        &self.name
    }

    fn length(&self) -> Option<usize> {
        self.length
    }

    fn frame_rate(&self) -> Option<f64> {
        self.frame_rate
    }

    fn indexed(&self) -> Option<Arc<dyn IndexedFrames>> {
        self.indexed.clone()
    }

    fn stop_handle(&self) -> Option<StopHandle> {
        self.stop.clone()
    }
}

impl Drop for Prefetch {
    fn drop(&mut self) {
        // The worker finds its channel closed, also when it waits for room in it.
        self.frames = None;
        if let Some(stop) = &self.stop {
            stop.stop();
        }
    }
}
