//! `cutout track`: tracks objects through a video.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use cutout_imaging::{Image, Size};
use cutout_sam::{Corrections, Direction, History, TrackOptions, TrackedFrame, Tracker, device};
use cutout_video::{FrameResult, FrameSource, ObjectMask, OpenOptions, open};

use crate::claims::Claims;
use crate::environment::Environment;
use crate::failure::Usage;
use crate::interrupt;
use crate::options::{ModelOption, RunOptions};
use crate::progress::Progress;

mod outputs;
mod prompts;
mod recorded;
mod resume;

use outputs::{TrackOutputs, Writers};
use prompts::TrackPrompts;
use recorded::Recorded;
use resume::{Position, StateFile, path_beside};

/// Track objects through a video
#[derive(Args)]
#[command(after_help = "Examples:
  cutout track clip.mp4 --point 310,220
      one click on the first frame; writes clip.masks/00000.png, ... and clip.overlay.gif
  cutout track frames --object 1 -p 310,220 --object 2 -b 40,60,200,300 -o masks -o masks.jsonl
      two objects; masks as palette PNG files and as JSON lines
  cutout track frames -m sam2.1_hiera_tiny.pt --frame 30 -p 310,220 --both --overlay clip.mp4
      a click on frame 30, tracked to the end and back to the beginning
  ffmpeg -i rtsp://camera -f rawvideo -pix_fmt rgb24 - | \\
      cutout track - --size 640x480 -p 310,220 -o masks.jsonl
      live frames

--frame and --object apply to the prompts after them, until they are given again.")]
pub(crate) struct Track {
    /// A folder of pictures, a GIF, APNG or WebP animation, a video that ffmpeg reads, or - for standard input
    video: PathBuf,
    #[command(flatten)]
    model: ModelOption,
    #[command(flatten)]
    prompts: TrackPrompts,
    /// Track backward only: from the first frame with a prompt to the beginning
    #[arg(long, conflicts_with = "both")]
    reverse: bool,
    /// Track forward to the end, then backward from the first frame with a prompt to the beginning
    #[arg(long)]
    both: bool,
    /// The video is a stream of raw RGB frames of this size, three bytes per pixel
    #[arg(long, value_name = "WIDTHxHEIGHT", value_parser = parse_size)]
    size: Option<Size>,
    /// Stop after this many frames, counted from the first with a prompt
    #[arg(long, value_name = "N")]
    max_frames: Option<NonZeroUsize>,
    /// Number of prompted frames that memory attention reads, the closest in time first; by default all
    #[arg(long, value_name = "N")]
    max_prompted_frames: Option<usize>,
    /// Fill holes of at most this many pixels in the low-resolution masks. Meta's code uses 8 on a GPU
    #[arg(long, value_name = "PIXELS", default_value_t = 0)]
    fill_hole_area: usize,
    /// Encode the next frame while the current one is tracked. Takes about 300 MiB more; useful on many cores
    #[arg(long, value_name = "WHEN", value_enum, default_value_t = LookAhead::Never)]
    look_ahead: LookAhead,
    /// Keep the memories of all frames in this folder instead of dropping old ones
    #[arg(long, value_name = "FOLDER")]
    history: Option<PathBuf>,
    /// Go on after the last frame of a run of the same command that broke off
    #[arg(long)]
    resume: bool,
    #[command(flatten)]
    outputs: TrackOutputs,
    #[command(flatten)]
    run: RunOptions,
}

/// When the next frame is encoded while the current one is tracked.
#[derive(Clone, Copy, ValueEnum)]
enum LookAhead {
    /// With four threads or more, unless frames come from standard input
    Auto,
    Always,
    Never,
}

/// Number of threads from which tracking a single frame leaves some idle.
const MANY_THREADS: usize = 4;

impl LookAhead {
    fn is_wanted(self, threads: usize, live: bool) -> bool {
        match self {
            LookAhead::Auto => threads >= MANY_THREADS && !live,
            LookAhead::Always => true,
            LookAhead::Never => false,
        }
    }
}

fn parse_size(text: &str) -> Result<Size, String> {
    let wrong = || "expected WIDTHxHEIGHT, such as 640x480".to_owned();
    let (width, height) = text.split_once(['x', 'X']).ok_or_else(wrong)?;
    let [width, height] = [width, height].map(|length| length.trim().parse().map_err(|_| wrong()));
    Ok(Size::new(width?, height?))
}

impl Track {
    pub(crate) fn run(self) -> Result<()> {
        if self.prompts.is_empty() {
            return Err(Usage::error(
                "nothing to follow: give a --point, a --box or a --mask-input on some frame",
            ));
        }
        self.check_frames()?;
        let tools = Environment::read().video_tools();
        let options =
            OpenOptions { tools: tools.clone(), raw: self.size, ..OpenOptions::default() };
        let model = self.model.source()?;
        self.claim(&mut self.run.claims(&model))?;
        let source = open(&self.video, &options)?;
        let sam = model.start(&self.run)?;
        let state = self.state();
        let tracking = self.options(&*source);
        let resumed = match self.resume {
            true => state.load(&sam, &tracking)?,
            false => None,
        };
        let (tracker, position) = match resumed {
            Some((tracker, position)) => (tracker, Some(position)),
            None => (sam.track(tracking)?, None),
        };
        let (length, rate) = (source.length(), source.frame_rate());
        let mut recorded = Recorded::new(source, self.goes_back())?;
        let (first, last) = self.prompts.frames();
        let first = recorded.frame(first)?;
        recorded.check(last)?;
        // Errors in prompts are reported before the slow part and before existing results are overwritten.
        self.prompts.check(&tracker, first.size())?;
        if let Some(folder) = &self.history {
            std::fs::create_dir_all(folder)
                .with_context(|| format!("{}: cannot make the folder", folder.display()))?;
        }
        let writers = self.outputs.open(&self.video, rate, &tools, position)?;
        interrupt::finish_gracefully();
        let run = self.start(tracker, writers, state, length);
        self.follow(first, recorded, Run { position, ..run })
    }

    /// Returns an error for a prompt on a frame after those that `--max-frames` allows. Backward tracking reads all prompts
    /// first.
    fn check_frames(&self) -> Result<()> {
        let (first, last) = self.prompts.frames();
        match self.max_frames {
            Some(most) if !self.reverse && last - first >= most.get() => {
                let end = first + most.get() - 1;
                Err(Usage::error(format!(
                    "the prompt on frame {last} is never reached: --max-frames {most} ends at frame {end}, counted from the first prompt on frame {first}"
                )))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Where the state of this run is kept.
    fn state(&self) -> StateFile {
        let Track { prompts, reverse, both, size, max_prompted_frames, fill_hole_area, .. } = self;
        let question = format!(
            "{} {prompts:?} {reverse} {both} {size:?} {max_prompted_frames:?} {fill_hole_area}",
            self.video.display()
        );
        StateFile::beside(&self.outputs.first(&self.video), question, self.resume)
    }

    /// Adds the inputs and outputs of this command to `claims`.
    fn claim(&self, claims: &mut Claims) -> Result<()> {
        if !self.is_live() {
            claims.reads(&self.video);
        } else if self.resume {
            return Err(Usage::error("--resume needs a video that can be read again"));
        }
        self.prompts.files().for_each(|file| claims.reads(file));
        let mut history = self.history.iter();
        history.try_for_each(|folder| claims.writes_into(folder, |_| false))?;
        self.outputs.claim(claims, &self.video, self.resume)?;
        claims.writes_unnamed(&path_beside(&self.outputs.first(&self.video)))
    }

    fn options(&self, source: &dyn FrameSource) -> TrackOptions {
        TrackOptions {
            length: source.length(),
            most_prompted_frames: self.max_prompted_frames,
            fill_hole_area: self.fill_hole_area,
            corrections: Corrections::default(),
            history: self.history.clone().map_or(History::Recent, History::Disk),
        }
    }

    fn start(
        &self,
        tracker: Tracker,
        writers: Writers,
        state: StateFile,
        length: Option<usize>,
    ) -> Run {
        let progress = match length {
            Some(length) => Progress::bar(length as u64, "frames"),
            None => Progress::spinner("frames"),
        };
        let threads = device::threads(tracker.sam().profile());
        Run {
            tracker,
            writers,
            progress,
            started: std::time::Instant::now(),
            state,
            position: None,
            done_here: 0,
            most: self.max_frames.map_or(usize::MAX, NonZeroUsize::get),
            looks_ahead: self.look_ahead.is_wanted(threads, self.is_live()),
        }
    }

    /// Whether frames are read more than once.
    fn goes_back(&self) -> bool {
        let (first, last) = self.prompts.frames();
        first != last || self.reverse || self.both
    }

    fn follow(&self, first: Image, recorded: Recorded, mut run: Run) -> Result<()> {
        let result = self.all_ways(first, recorded, &mut run);
        let Run { tracker, writers, progress, mut state, position, .. } = run;
        let finished = writers.finish();
        drop(progress);
        // The first error is reported.
        let result = result.and(finished).and_then(|()| interrupt::check());
        if let (Err(_), Some(position)) = (&result, position) {
            self.outputs.note_partial(&self.video, position.frame);
            if self.is_live() {
                return result;
            }
            state.break_off(&tracker, position);
        }
        result?;
        state.remove()?;
        self.outputs.note_written(&self.video);
        Ok(())
    }

    /// Gives the prompts on their frames, then tracks forward and backward. `image` is the first prompted frame.
    fn all_ways(&self, image: Image, mut recorded: Recorded, run: &mut Run) -> Result<()> {
        if run.position.is_none() {
            self.give_prompts(image, &mut recorded, run)?;
        }
        let turned = run.position.is_some_and(|last| last.direction == Direction::Backward);
        if !self.reverse && !turned {
            self.go_forward(&mut recorded, run)?;
        }
        if self.reverse || self.both {
            self.go_back(&mut recorded, run)?;
        }
        Ok(())
    }

    /// Gives the prompts on their frames. A single prompted frame is also tracked, because it is not read again.
    fn give_prompts(&self, image: Image, recorded: &mut Recorded, run: &mut Run) -> Result<()> {
        let again = self.goes_back();
        let mut at_hand = Some(image);
        for frame in self.prompts.each_frame() {
            let image = at_hand.take().map_or_else(|| recorded.frame(frame), Ok)?;
            run.tracker.visit(frame, &image)?;
            self.prompts.show(&mut run.tracker, frame)?;
            if !again {
                run.step(frame, &image, Direction::Forward)?;
            }
        }
        Ok(())
    }

    /// Tracks from the frame after the last one, or from the first prompted one, to the end.
    fn go_forward(&self, recorded: &mut Recorded, run: &mut Run) -> Result<()> {
        let (first, last) = self.prompts.frames();
        for frame in run.position.map_or(first, |done| done.frame + 1)..=last {
            if run.is_over() {
                return Ok(());
            }
            let image = recorded.frame(frame)?;
            run.step(frame, &image, Direction::Forward)?;
        }
        let done = run.position.map_or(last, |done| done.frame);
        recorded.skip_to(done)?;
        run.follow_to_the_end(done, recorded)
    }

    /// Tracks back to the beginning.
    fn go_back(&self, recorded: &mut Recorded, run: &mut Run) -> Result<()> {
        let (first, last) = self.prompts.frames();
        let start = match run.position {
            Some(Position { frame, direction: Direction::Backward, .. }) => frame.checked_sub(1),
            Some(_) => first.checked_sub(1),
            None => Some(first),
        };
        recorded.skip_to(last)?;
        for frame in start.into_iter().flat_map(|start| (0..=start).rev()) {
            if run.is_over() {
                return Ok(());
            }
            let image = recorded.frame(frame)?;
            run.step(frame, &image, Direction::Backward)?;
        }
        Ok(())
    }

    /// Whether frames come from standard input, which cannot be read again.
    fn is_live(&self) -> bool {
        self.video.as_os_str() == "-"
    }
}

/// A run through a video.
struct Run {
    tracker: Tracker,
    writers: Writers,
    progress: Progress,
    started: std::time::Instant,
    state: StateFile,
    /// The last frame that was written.
    position: Option<Position>,
    /// Frames written by this process.
    done_here: usize,
    /// Number of frames after which to stop.
    most: usize,
    /// Whether the next frame is encoded while the current one is tracked.
    looks_ahead: bool,
}

impl Run {
    /// Frames written so far.
    fn done(&self) -> usize {
        self.position.map_or(0, |position| position.done)
    }

    fn is_over(&self) -> bool {
        self.done() >= self.most || interrupt::requested()
    }

    /// Tracks all frames after `frame`.
    fn follow_to_the_end(&mut self, mut frame: usize, recorded: &mut Recorded) -> Result<()> {
        let mut next = Ok(None);
        if !self.is_over() {
            next = recorded.after(frame);
        }
        while let Some(image) = next? {
            frame += 1;
            next = Ok(None);
            if self.looks_ahead && self.done() + 1 < self.most {
                // An error of the next frame is reported after the current one is written.
                next = recorded.after(frame);
                self.tracker.visit(frame, &image)?;
            }
            if let Ok(Some(next)) = &next {
                self.tracker.look_ahead(next);
            }
            self.step(frame, &image, Direction::Forward)?;
            if self.is_over() {
                break;
            }
            if !self.looks_ahead {
                next = recorded.after(frame);
            }
        }
        Ok(())
    }

    fn step(&mut self, frame: usize, image: &Image, direction: Direction) -> Result<()> {
        let tracked = self.tracker.push_at(frame, image, direction)?;
        let objects = objects(&tracked)?;
        self.writers.write(&FrameResult { index: frame, image, objects: &objects }, &tracked)?;
        let position = Position { frame, direction, done: self.done() + 1 };
        self.position = Some(position);
        self.state.keep(&self.tracker, position)?;
        self.done_here += 1;
        self.progress.set(position.done as u64);
        let speed = self.done_here as f64 / self.started.elapsed().as_secs_f64();
        let memory =
            crate::memory::resident_mib().map_or(String::new(), |mib| format!(", {mib:.0} MiB"));
        self.progress.say(format!("{speed:.2} frames/s{memory}"));
        Ok(())
    }
}

/// The masks of a frame at the size of the frame.
fn objects(tracked: &TrackedFrame) -> Result<Vec<ObjectMask>> {
    let object = |object: &cutout_sam::TrackedObject| {
        let score = object.segment.object_score().unwrap_or(0.0);
        Ok(ObjectMask { id: object.id, mask: object.segment.rle()?, score })
    };
    tracked.objects.iter().map(object).collect()
}
