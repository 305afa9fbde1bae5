//! `cutout track`: tracks objects through a video.

use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use cutout_imaging::{Image, Size};
use cutout_sam::{Direction, History, Sam, TrackOptions, Tracker};
use cutout_video::{FrameResult, FrameSource, OpenOptions, WrittenMasks, open};

use crate::claims::Claims;
use crate::environment::Environment;
use crate::failure::Usage;
use crate::interrupt;
use crate::options::{ModelOption, RunOptions};
use crate::progress::Progress;
use crate::stdio;

mod asked;
mod earlier;
mod outputs;
mod phrases;
mod prompts;
mod recorded;
mod resume;
mod run;

use outputs::{Places, TrackOutputs, Writers, overlay_options};
use phrases::PhraseFlags;
use prompts::TrackPrompts;
use recorded::Recorded;
use resume::{Position, StateFile, path_beside};
use run::{Run, note_kept_at_the_end};

/// Track objects through a video
#[derive(Args)]
#[command(after_help = "Examples:
  cutout track clip.mp4 --point 310,220
      one click on the first frame; writes clip.masks/00000.png, ... and clip.overlay.gif
  cutout track frames --object 1 -p 310,220 --object 2 -b 40,60,200,300 -o masks -o masks.jsonl
      two objects; masks as palette PNG files and as JSON lines
  cutout track frames -m sam3.pt --frame 30 -p 310,220 --both --overlay clip.mp4
      a click on frame 30, tracked to the end and back to the beginning
  cutout track street.mp4 -m sam3.pt --text car --text \"person in red\" -o tracks.jsonl
      every car and every person in red, numbered
  cutout track a.mp4 -m sam3.pt --text car --exemplar 4,6,20,30 --frame 90 --remove 3 -o mot.txt
      cars, with an example on the first frame; object 3 ends on frame 90
  ffmpeg -i rtsp://camera -f rawvideo -pix_fmt rgb24 - | \\
      cutout track - --size 640x480 -p 310,220 -o masks.jsonl
      live frames

--frame and --object apply to the prompts after them, until they are given again.")]
pub(crate) struct Track {
    /// A folder or zip archive of pictures, a GIF, APNG or WebP animation, a video that ffmpeg reads, or - for standard input
    video: PathBuf,
    #[command(flatten)]
    model: ModelOption,
    #[command(flatten)]
    prompts: TrackPrompts,
    #[command(flatten)]
    phrases: PhraseFlags,
    /// Track backward only: from the first frame with a prompt to the beginning; with --text, from the last one
    #[arg(long, conflicts_with = "both")]
    reverse: bool,
    /// Track forward to the end, then backward from the first frame with a prompt to the beginning
    #[arg(long)]
    both: bool,
    /// Standard input is a stream of raw RGB frames of this size, three bytes per pixel
    #[arg(long, value_name = "WIDTHxHEIGHT", value_parser = parse_size)]
    size: Option<Size>,
    /// Stop after this many frames, counted from the first with a prompt
    #[arg(long, value_name = "N")]
    max_frames: Option<NonZeroUsize>,
    /// Number of prompted frames that memory attention reads, the closest in time first; by default all
    #[arg(long, value_name = "N")]
    max_prompted_frames: Option<usize>,
    /// Fill holes of at most this many pixels in the low-resolution masks; by default none, with --text 16. Meta's code uses 8
    /// on a GPU
    #[arg(long, value_name = "PIXELS")]
    fill_hole_area: Option<usize>,
    /// Encode the next frame while the current one is tracked. On a processor it takes about 300 MiB more, and is useful on many cores
    #[arg(long, value_name = "WHEN", value_enum, default_value_t = LookAhead::Auto)]
    look_ahead: LookAhead,
    /// Keep the memories of all frames in this folder instead of dropping old ones
    #[arg(long, value_name = "FOLDER")]
    history: Option<PathBuf>,
    /// Go on after the last frame of a run of the same command that broke off; after one that was killed, from its last state.
    /// An overlay in one file is drawn anew from the masks
    #[arg(long)]
    resume: bool,
    /// Say what is kept in memory: every 100 frames and at the end
    #[arg(long)]
    verbose: bool,
    #[command(flatten)]
    outputs: TrackOutputs,
    #[command(flatten)]
    run: RunOptions,
}

/// When the next frame is encoded while the current one is tracked.
#[derive(Clone, Copy, ValueEnum)]
enum LookAhead {
    /// On a GPU, unless frames come from standard input
    Auto,
    Always,
    Never,
}

impl LookAhead {
    fn is_wanted(self, sam: &Sam, live: bool) -> bool {
        match self {
            LookAhead::Auto => sam.computes_beside_host() && !live,
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
        if !self.prompts.asked().is_empty() {
            return self.run_phrases();
        }
        self.phrases.check_unused()?;
        self.prompts.check_flags()?;
        self.check_frames()?;
        let places = self.outputs.places(&self.video);
        places.check_objects(self.prompts.objects())?;
        if self.resume {
            places.check_resume()?;
        }
        let model = self.model.source()?;
        self.claim(&mut self.run.claims(&model), &places)?;
        let options = self.open_options();
        let source = open(&self.video, &options)?;
        let state = self.state(&places, source.length());
        if self.resume && !state.exists() && self.is_complete(&places, source.length()) {
            stdio::note(&format!(
                "{}: complete, all frames are written. To track them again, leave out --resume",
                places.first().display()
            ));
            return Ok(());
        }
        let sam = model.start(&self.run)?;
        let tracking = self.options(&*source);
        let resumed = match self.resume {
            true => state.load(&sam, &tracking)?,
            false => None,
        };
        let (tracker, position) = match resumed {
            Some((tracker, position)) => (tracker, Some(position)),
            None => (sam.track(tracking).with_context(|| model.shown())?, None),
        };
        let (length, rate) = (source.length(), source.frame_rate());
        let mut recorded = Recorded::new(source, self.goes_back())?;
        let (first, last) = self.prompts.frames();
        let image = recorded.frame(first)?;
        recorded.check(last)?;
        // Errors in prompts are reported before the slow part and before existing results are overwritten.
        self.prompts.check(&tracker, image.size())?;
        let mut done = BTreeSet::new();
        if let Some(position) = position {
            self.check_video(position, &image, &mut recorded)?;
            done = position.frames(first).collect();
            earlier::check_results(&places, &done)?;
        } else {
            state.remove()?;
        }
        self.make_history()?;
        let writers = places.open(done.len(), &overlay_options(rate, options.tools))?;
        earlier::remove_other_frames(&places, &done)?;
        interrupt::finish_gracefully();
        let run = self.start(tracker, writers, state, length);
        self.follow(image, recorded, Run { position, ..run }, &places)
    }

    fn make_history(&self) -> Result<()> {
        let Some(folder) = &self.history else { return Ok(()) };
        std::fs::create_dir_all(folder)
            .with_context(|| format!("{}: cannot make the folder", folder.display()))
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
    fn state(&self, places: &Places, length: Option<usize>) -> StateFile {
        let Track { prompts, reverse, both, size, max_prompted_frames, fill_hole_area, .. } = self;
        let question = format!(
            "{} {prompts:?} {reverse} {both} {size:?} {max_prompted_frames:?} {fill_hole_area:?}",
            self.video.display()
        );
        let can_go_on = !self.is_live() && places.check_resume().is_ok();
        StateFile::beside(places.first(), question, length).kept(can_go_on)
    }

    /// Whether an earlier run wrote the results of all frames of a video of this length.
    fn is_complete(&self, places: &Places, length: Option<usize>) -> bool {
        let Some(length) = length else { return false };
        let (first, _) = self.prompts.frames();
        let forward = first..if self.reverse { first + 1 } else { length };
        let backward = 0..if self.reverse || self.both { first } else { 0 };
        let frames = forward.chain(backward.rev()).take(self.most_frames());
        earlier::are_complete(places, &frames.collect())
    }

    /// Returns an error unless the first and the last frame of a run that broke off are still the same.
    fn check_video(
        &self,
        position: Position,
        first_image: &Image,
        recorded: &mut Recorded,
    ) -> Result<()> {
        let (first, last) = (self.prompts.frames().0, position.frame);
        let last_pixels = match first == last {
            true => first_image.fingerprint(),
            false => recorded.frame(last)?.fingerprint(),
        };
        let changed = [
            (first, first_image.fingerprint() != position.first_pixels),
            (last, last_pixels != position.last_pixels),
        ];
        match changed.into_iter().find(|(_, is_changed)| *is_changed) {
            None => Ok(()),
            Some((frame, _)) => Err(Usage::error(format!(
                "{}: the video has changed since the run that broke off: frame {frame} is another picture; leave out --resume to begin with the first frame",
                self.video.display()
            ))),
        }
    }

    fn open_options(&self) -> OpenOptions {
        let tools = Environment::read().video_tools();
        OpenOptions { tools, raw: self.size, ..OpenOptions::default() }
    }

    /// Number of frames after which to stop.
    fn most_frames(&self) -> usize {
        self.max_frames.map_or(usize::MAX, NonZeroUsize::get)
    }

    /// Returns an error for a `--size` with a folder or file. A pipe or device is a stream.
    fn check_size(&self) -> Result<()> {
        let is_stream = |found: std::fs::Metadata| !found.is_file() && !found.is_dir();
        match self.size {
            Some(_) if !std::fs::metadata(&self.video).is_ok_and(is_stream) => {
                let video = self.video.display();
                Err(Usage::error(format!(
                    "{video}: --size is for a stream of raw frames on standard input: cutout track - --size WIDTHxHEIGHT < FILE"
                )))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Adds the inputs and outputs of this command to `claims`.
    fn claim(&self, claims: &mut Claims, places: &Places) -> Result<()> {
        if !self.is_live() {
            self.check_size()?;
            claims.reads(&self.video);
        } else if self.resume {
            return Err(Usage::error("--resume needs a video that can be read again"));
        }
        self.prompts.files().for_each(|file| claims.reads(file));
        let mut history = self.history.iter();
        history.try_for_each(|folder| claims.writes_into(folder, |_| false))?;
        places.claim(claims)?;
        claims.writes_unnamed(&path_beside(places.first()))
    }

    fn options(&self, source: &dyn FrameSource) -> TrackOptions {
        TrackOptions {
            length: source.length(),
            most_prompted_frames: self.max_prompted_frames,
            fill_hole_area: self.fill_hole_area.unwrap_or(0),
            corrections: None,
            memory_selection: None,
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
        let looks_ahead = self.look_ahead.is_wanted(tracker.sam(), self.is_live());
        Run {
            tracker,
            writers,
            progress,
            started: std::time::Instant::now(),
            state,
            position: None,
            done_here: 0,
            most: self.most_frames(),
            looks_ahead,
            verbose: self.verbose,
        }
    }

    /// Whether frames are read more than once.
    fn goes_back(&self) -> bool {
        let (first, last) = self.prompts.frames();
        first != last || self.reverse || self.both
    }

    fn follow(
        &self,
        first: Image,
        recorded: Recorded,
        mut run: Run,
        places: &Places,
    ) -> Result<()> {
        let result = self.redraw(&mut run, places);
        let result = result.and_then(|()| self.all_ways(first, recorded, &mut run));
        let Run { tracker, writers, progress, state, position, .. } = run;
        let finished = writers.finish();
        drop(progress);
        note_kept_at_the_end(self.verbose, || tracker.kept());
        // The first error is reported.
        let result = result.and(finished).and_then(|()| interrupt::check());
        if let (Err(_), Some(position)) = (&result, position) {
            places.note_partial(position.frame);
            if state.is_kept() {
                state.break_off(&tracker, position);
            }
        }
        result?;
        state.remove()?;
        places.note_written();
        Ok(())
    }

    /// Draws the frames of a run that broke off, if the overlay is one file, which cannot be continued.
    fn redraw(&self, run: &mut Run, places: &Places) -> Result<()> {
        let (Some(position), Some(_), Some(masks)) =
            (run.position, places.overlay_file(), places.readable_masks())
        else {
            return Ok(());
        };
        let mut masks = WrittenMasks::open(masks)?;
        let again = position.direction == Direction::Backward;
        let mut recorded = Recorded::new(open(&self.video, &self.open_options())?, again)?;
        for index in position.frames(self.prompts.frames().0) {
            if interrupt::requested() {
                break;
            }
            let image = &recorded.frame(index)?;
            let objects = &masks.frame(index, image.size())?;
            run.writers.draw(&FrameResult { index, image, objects })?;
        }
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
