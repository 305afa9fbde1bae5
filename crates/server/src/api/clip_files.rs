//! Files of the masks of a clip.

use std::fs;
use std::io;
use std::path::Path as FilePath;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use cutout_files::TemporaryFolder;
use cutout_video::{
    ArchiveWriter, FrameResult, JsonLines, LabelPictures, MotText, OverlayOptions, Sink, SinkError,
    Tools, VideoJson, open_overlay,
};

use super::video_types::{ClipExportRequest, ClipFormat};
use crate::clips::Clip;
use crate::problem::Problem;
use crate::server::{App, parse};

/// Frames per second where the clip does not say.
const USUAL_RATE: f64 = 25.0;
/// Name of the folder of frames.
const FOLDER: &str = "frames";

/// Tells the writer that its client left.
struct Listening(Arc<AtomicBool>);

impl Drop for Listening {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// `POST /api/v1/videos/{id}/export`.
pub(super) async fn export(
    State(app): State<App>,
    Path(id): Path<String>,
    body: Bytes,
) -> Result<Response, Problem> {
    let ClipExportRequest { format } = parse(&body)?;
    let clip = app.clips.get(&id)?;
    let (tools, most) = (app.tools.clone(), app.limits.export_bytes);
    let listening = Listening(Arc::default());
    let is_gone = Arc::clone(&listening.0);
    let file = app.off_thread(move || written(&clip, format, tools, (most, &is_gone)));
    let bytes = file.await?;
    drop(listening);
    let (kind, name) = format.file();
    let attachment = format!("attachment; filename=\"{name}\"");
    let headers = [(header::CONTENT_TYPE, kind), (header::CONTENT_DISPOSITION, &*attachment)];
    Ok((headers, bytes).into_response())
}

impl ClipFormat {
    /// Media type, and name of the file.
    fn file(self) -> (&'static str, &'static str) {
        match self {
            ClipFormat::Labels => ("application/zip", "labels.zip"),
            ClipFormat::Jsonl => ("application/jsonl", "masks.jsonl"),
            ClipFormat::Vis => ("application/json", "masks.json"),
            ClipFormat::Mot => ("text/plain", "boxes.txt"),
            ClipFormat::Gif => ("image/gif", "overlay.gif"),
            ClipFormat::Mp4 => ("video/mp4", "overlay.mp4"),
            ClipFormat::Webm => ("video/webm", "overlay.webm"),
            ClipFormat::Overlay => ("application/zip", "overlay.zip"),
        }
    }

    fn is_archive(self) -> bool {
        matches!(self, ClipFormat::Labels | ClipFormat::Overlay)
    }
}

/// The bytes of a file.
fn written(
    clip: &Clip,
    format: ClipFormat,
    tools: Tools,
    (most, is_gone): (u64, &AtomicBool),
) -> Result<Vec<u8>, Problem> {
    let frames = clip.masked_frames();
    if frames.is_empty() {
        return Err(Problem::Invalid("the clip has no masks yet".to_owned()));
    }
    let failed = |error: &io::Error| Problem::Internal(format!("the temporary folder: {error}"));
    let folder = TemporaryFolder::create().map_err(|error| failed(&error))?;
    let place = folder.path().join(if format.is_archive() { FOLDER } else { format.file().1 });
    let rate = clip.frames.rate().filter(|rate| *rate > 0.0 && *rate <= 1000.0);
    let overlay = OverlayOptions { frame_rate: rate.unwrap_or(USUAL_RATE), tools };
    let mut sink: Box<dyn Sink> = match format {
        ClipFormat::Labels => Box::new(LabelPictures::create(&place)?),
        ClipFormat::Jsonl => Box::new(JsonLines::create(&place)?),
        ClipFormat::Vis => Box::new(VideoJson::create(&place, "clip")?),
        ClipFormat::Mot => Box::new(MotText::create(&place)?),
        ClipFormat::Gif | ClipFormat::Mp4 | ClipFormat::Webm | ClipFormat::Overlay => {
            open_overlay(&place, &overlay)?
        }
    };
    for index in frames {
        if is_gone.load(Ordering::Relaxed) {
            return Err(Problem::Gone);
        }
        let (image, objects) = (clip.frames.read(index)?, clip.masks(index));
        sink.write(&FrameResult { index, image: &image, objects: &objects })?;
        check_size(&place, most)?;
    }
    sink.finish()?;
    if format.is_archive() {
        return archive(&place, most).map_err(|error| failed(&error));
    }
    check_size(&place, most)?;
    fs::read(&place).map_err(|error| failed(&error))
}

/// An error for a file that is longer than what is answered. A folder is counted when it is read.
fn check_size(place: &FilePath, most: u64) -> Result<(), Problem> {
    match fs::metadata(place) {
        Ok(found) if found.is_file() && found.len() > most => Err(Problem::Invalid(format!(
            "the file has more than {most} bytes: choose another format"
        ))),
        Ok(_) | Err(_) => Ok(()),
    }
}

/// A zip archive of the files of a folder.
fn archive(folder: &FilePath, most: u64) -> io::Result<Vec<u8>> {
    let mut names: Vec<_> =
        fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<io::Result<_>>()?;
    names.sort();
    let mut writer = ArchiveWriter::new(Vec::new());
    let mut bytes = 0;
    for path in names {
        let content = fs::read(&path)?;
        bytes += content.len() as u64;
        if bytes > most {
            return Err(io::Error::other(format!("the pictures have more than {most} bytes")));
        }
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        writer.add(&name, &content)?;
    }
    writer.finish()
}

impl From<SinkError> for Problem {
    fn from(error: SinkError) -> Self {
        match error {
            SinkError::NoFfmpeg { .. } => Problem::Invalid(
                "the server has no ffmpeg, which writes videos: choose gif or overlay".to_owned(),
            ),
            SinkError::TooLarge { found, format, .. } => {
                Problem::Invalid(format!("{found} is too large for a {format} file"))
            }
            SinkError::ObjectId { .. } => Problem::Invalid(error.to_string()),
            SinkError::Write(_)
            | SinkError::Encode(_)
            | SinkError::Image { .. }
            | SinkError::NotAFolder { .. }
            | SinkError::ReadBack { .. }
            | SinkError::FrameSize { .. }
            | SinkError::FrameRate { .. }
            | SinkError::Extension { .. }
            | SinkError::Start { .. }
            | SinkError::Ffmpeg { .. } => Problem::Internal(error.to_string()),
        }
    }
}
