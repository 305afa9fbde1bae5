//! Prompts on frames of a video, in command-line order.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::{Arg, ArgMatches, Args, Command, FromArgMatches, value_parser};
use cutout_imaging::{Mask, Size};
use cutout_sam::prompt_text::{ExemplarShape, parse_exemplar, parse_point, parse_rect};
use cutout_sam::{Label, ObjectId, Point, Prompt, Rect, TrackPrompt, Tracker};

use super::asked::Asked;
use crate::failure::Usage;

/// The prompts of one object on one frame.
#[derive(Clone, Debug, Default)]
struct ObjectPrompts {
    points: Vec<(Point, Label)>,
    rect: Option<Rect>,
    mask: Option<PathBuf>,
}

/// Prompts by frame and object.
#[derive(Clone, Debug, Default)]
pub(super) struct TrackPrompts {
    shown: BTreeMap<usize, BTreeMap<ObjectId, ObjectPrompts>>,
    asked: Asked,
    /// What is wrong with the flags. The parser would report it with the usage of the whole program.
    conflict: Option<String>,
}

/// One flag of a prompt.
enum Flag {
    Frame(usize),
    Object(ObjectId),
    Point((Point, Label)),
    Box(Rect),
    Mask(PathBuf),
    Text(String),
    Exemplar((ExemplarShape, Label)),
    Remove(ObjectId),
}

impl TrackPrompts {
    /// Returns an error for flags that contradict each other, and if there is no prompt.
    pub(super) fn check_flags(&self) -> Result<()> {
        let missing = "nothing to follow: give a --point, a --box or a --mask-input on some frame, or a --text";
        self.check_conflicts()?;
        if self.shown.is_empty() {
            return Err(Usage::error(missing));
        }
        if self.asked.removes() {
            return Err(Usage::error("--remove needs --text or --exemplar"));
        }
        Ok(())
    }

    /// Returns an error for flags that contradict each other.
    pub(super) fn check_conflicts(&self) -> Result<()> {
        self.conflict.as_ref().map_or(Ok(()), |conflict| Err(Usage::error(conflict)))
    }

    /// What is to be found.
    pub(super) fn asked(&self) -> &Asked {
        &self.asked
    }

    /// Files that are read.
    pub(super) fn files(&self) -> impl Iterator<Item = &PathBuf> {
        let objects = self.shown.values().flat_map(BTreeMap::values);
        objects.filter_map(|object| object.mask.as_ref())
    }

    /// The first and the last frame with a prompt.
    pub(super) fn frames(&self) -> (usize, usize) {
        let frames = || self.shown.keys().copied().chain(self.asked.frames());
        (frames().min().unwrap_or(0), frames().max().unwrap_or(0))
    }

    /// The objects with prompts, some more than once.
    pub(super) fn objects(&self) -> impl Iterator<Item = ObjectId> {
        self.shown.values().flat_map(BTreeMap::keys).copied()
    }

    /// The frames with prompts, in ascending order.
    pub(super) fn each_frame(&self) -> impl Iterator<Item = usize> {
        self.shown.keys().copied()
    }

    /// Checks all prompts against the size of the video.
    pub(super) fn check(&self, tracker: &Tracker, size: Size) -> Result<()> {
        self.check_each(size, |prompt, size| Ok(tracker.check_prompt(prompt, size)?))
    }

    /// Checks all prompts against the size of the video by `check`.
    pub(super) fn check_each(
        &self,
        size: Size,
        check: impl Fn(TrackPrompt<'_>, Size) -> Result<()>,
    ) -> Result<()> {
        self.each_frame()
            .try_for_each(|frame| self.each_object(frame, |_, prompt| check(prompt, size)))
    }

    /// Gives the prompts of `frame` to the tracker, which holds that frame.
    pub(super) fn show(&self, tracker: &mut Tracker, frame: usize) -> Result<()> {
        self.each_object(frame, |object, prompt| {
            Ok(tracker.prompt(frame, object, prompt).map(drop)?)
        })
    }

    /// Calls `receive` with the prompt of each object on a frame. Only one mask file is in memory at a time.
    pub(super) fn each_object(
        &self,
        frame: usize,
        mut receive: impl FnMut(ObjectId, TrackPrompt<'_>) -> Result<()>,
    ) -> Result<()> {
        for (object, shown) in self.shown.get(&frame).into_iter().flatten() {
            let received = match &shown.mask {
                Some(path) => receive(*object, (&read_mask(path)?).into()),
                None => receive(*object, (&shown.prompt()).into()),
            };
            received.with_context(|| format!("object {object} on frame {frame}"))?;
        }
        Ok(())
    }

    /// Groups flags, given in command-line order, by frame and object.
    fn sorted(flags: Vec<Flag>) -> Result<Self, String> {
        let (mut frame, mut object) = (0, 1);
        // Flags that no prompt has followed yet.
        let (mut open_frame, mut open_object) = (None, None);
        let mut prompts = TrackPrompts::default();
        for flag in flags {
            let prompt = match flag {
                Flag::Frame(number) => {
                    open_frame = Some(number);
                    frame = number;
                    continue;
                }
                Flag::Object(number) => {
                    open_object = Some(number);
                    object = number;
                    continue;
                }
                Flag::Text(text) => {
                    open_frame = None;
                    prompts.asked.add_text(frame, text);
                    continue;
                }
                Flag::Exemplar(exemplar) => {
                    open_frame = None;
                    prompts.asked.add_exemplar(frame, exemplar);
                    continue;
                }
                Flag::Remove(number) => {
                    open_frame = None;
                    prompts.asked.add_removal(frame, number);
                    continue;
                }
                Flag::Point(_) | Flag::Box(_) | Flag::Mask(_) => flag,
            };
            (open_frame, open_object) = (None, None);
            let shown = prompts.shown.entry(frame).or_default().entry(object).or_default();
            let add = shown.add(prompt);
            add.map_err(|reason| format!("object {object} on frame {frame} {reason}"))?;
        }
        refuse_open("--frame", open_frame)?;
        refuse_open("--object", open_object)?;
        Ok(prompts)
    }
}

/// An error for a `--frame` or `--object` without a prompt after it.
fn refuse_open(flag: &str, number: Option<impl Display>) -> Result<(), String> {
    match number {
        None => Ok(()),
        Some(number) => Err(format!(
            "{flag} {number} applies to the prompts after it, and there are none: give a --point, a --box or a --mask-input"
        )),
    }
}

impl ObjectPrompts {
    /// Adds the prompt of a flag.
    fn add(&mut self, flag: Flag) -> Result<(), &'static str> {
        match flag {
            Flag::Point(point) => self.points.push(point),
            Flag::Box(_) if self.rect.is_some() => return Err("has two boxes"),
            Flag::Box(rect) => self.rect = Some(rect),
            Flag::Mask(_) if self.mask.is_some() => return Err("has two masks"),
            Flag::Mask(path) => self.mask = Some(path),
            Flag::Frame(_) | Flag::Object(_) => {}
            Flag::Text(_) | Flag::Exemplar(_) | Flag::Remove(_) => {}
        }
        if self.mask.is_some() && (self.rect.is_some() || !self.points.is_empty()) {
            return Err("has a mask: points and boxes cannot be combined with it");
        }
        Ok(())
    }

    fn prompt(&self) -> Prompt {
        let mut prompt = Prompt::default();
        for (point, label) in &self.points {
            prompt = prompt.with_point(*point, *label);
        }
        match self.rect {
            Some(rect) => prompt.with_rect(rect),
            None => prompt,
        }
    }
}

/// Reads a mask from a picture: pixels with a channel above 127 are set.
fn read_mask(path: &std::path::Path) -> Result<Mask> {
    let image = crate::picture::open(path)?;
    let bright = |pixel: &[u8]| pixel.iter().any(|value| *value > 127);
    let pixels = image.as_rgb().chunks_exact(3).map(bright).collect();
    Ok(Mask::from_pixels(image.size(), pixels)?)
}

impl Args for TrackPrompts {
    fn augment_args(command: Command) -> Command {
        let heading = "Objects to track";
        let flag = |name: &'static str, value: &'static str| {
            Arg::new(name)
                .long(name)
                .value_name(value)
                .action(clap::ArgAction::Append)
                .help_heading(heading)
        };
        command
            .arg(
                flag("frame", "N")
                    .value_parser(value_parser!(usize))
                    .help("Frame of the prompts that follow, counted from 0 (default 0)"),
            )
            .arg(
                flag("object", "ID")
                    .value_parser(value_parser!(ObjectId))
                    .help("Object of the prompts that follow, any number (default 1); with --text, that of a found object to correct it"),
            )
            .arg(flag("point", "X,Y[,0|1]").short('p').allow_hyphen_values(true).value_parser(parse_point).help(
                "A point in pixels, on the object; with a third value 0, not on the object",
            ))
            .arg(
                flag("box", "X0,Y0,X1,Y1")
                    .short('b')
                    .allow_hyphen_values(true)
                    .value_parser(parse_rect)
                    .help("A box around the object: left, top, right, bottom"),
            )
            .arg(
                flag("mask-input", "FILE").value_parser(value_parser!(PathBuf)).help(
                    "The mask of the object: a picture of the size of the video, bright where the object is",
                ),
            )
            .args(finding_flags())
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

/// Flags of what is to be found, and of objects that are removed.
fn finding_flags() -> [Arg; 3] {
    let flag = |name: &'static str, value: &'static str| {
        let flag = Arg::new(name).long(name).value_name(value).action(clap::ArgAction::Append);
        flag.help_heading("Phrases (SAM 3, 3.1)")
    };
    [
        flag("text", "PHRASE").help(
            "Find, follow and number every object that this phrase describes, from the frame of --frame on. Repeat for more phrases",
        ),
        flag("exemplar", "[+|-]X0,Y0,X1,Y1|X,Y")
            .allow_hyphen_values(true)
            .value_parser(parse_exemplar)
            .help("An example of the phrase before it, on the frame of --frame: a box or a point; with a leading -, of what is not meant. Without a phrase, find what is like it on that frame, and follow it"),
        flag("remove", "ID")
            .value_parser(value_parser!(ObjectId))
            .help("Remove this object on the frame of --frame; the others go on"),
    ]
}

impl FromArgMatches for TrackPrompts {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut flags = Vec::new();
        collect(&mut flags, matches, "frame", Flag::Frame);
        collect(&mut flags, matches, "object", Flag::Object);
        collect(&mut flags, matches, "point", Flag::Point);
        collect(&mut flags, matches, "box", Flag::Box);
        collect(&mut flags, matches, "mask-input", Flag::Mask);
        collect(&mut flags, matches, "text", Flag::Text);
        collect(&mut flags, matches, "exemplar", Flag::Exemplar);
        collect(&mut flags, matches, "remove", Flag::Remove);
        flags.sort_by_key(|(index, _)| *index);
        let sorted = TrackPrompts::sorted(flags.into_iter().map(|(_, flag)| flag).collect());
        Ok(sorted.unwrap_or_else(|conflict| TrackPrompts {
            conflict: Some(conflict),
            ..TrackPrompts::default()
        }))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// Collects the values of a flag with their positions on the command line.
fn collect<T: Clone + Send + Sync + 'static>(
    flags: &mut Vec<(usize, Flag)>,
    matches: &ArgMatches,
    name: &str,
    flag: impl Fn(T) -> Flag,
) {
    let values = matches.get_many::<T>(name).into_iter().flatten().cloned();
    let positions = matches.indices_of(name).into_iter().flatten();
    flags.extend(positions.zip(values.map(flag)));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(arguments: &[&str]) -> Result<TrackPrompts> {
        let command = TrackPrompts::augment_args(Command::new("track").no_binary_name(true));
        let prompts = TrackPrompts::from_arg_matches(&command.try_get_matches_from(arguments)?)?;
        prompts.check_flags().map(|()| prompts)
    }

    #[test]
    fn frame_and_object_apply_to_the_prompts_that_follow() {
        let line =
            "-p 1,2 --object 7 -b 1,2,3,4 -p 5,6,0 --frame 9 -p 3,3 --object 1 --mask-input m.png";
        let prompts = parsed(&line.split(' ').collect::<Vec<_>>()).unwrap();
        assert_eq!(prompts.frames(), (0, 9));
        let counts = |frame: usize, object: ObjectId| {
            let shown = &prompts.shown[&frame][&object];
            (shown.points.len(), shown.rect.is_some(), shown.mask.is_some())
        };
        assert_eq!(counts(0, 1), (1, false, false));
        assert_eq!(counts(0, 7), (1, true, false));
        assert_eq!(counts(9, 7), (1, false, false));
        assert_eq!(counts(9, 1), (0, false, true));
    }

    #[test]
    fn conflicting_prompts_are_errors() {
        let open = ["-p 1,1 --object 2", "-p 1,1 --frame 3", "--object 2"];
        for line in open {
            let error = parsed(&line.split(' ').collect::<Vec<_>>()).unwrap_err();
            assert!(error.to_string().contains("applies to the prompts after it"), "{error}");
        }
        for line in ["-b 1,2,3,4 -b 1,2,3,4", "--mask-input a.png -p 1,1", "--frame x", "-p 1"] {
            assert!(parsed(&line.split(' ').collect::<Vec<_>>()).is_err(), "{line}");
        }
    }
}
