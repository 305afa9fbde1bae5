//! The masks of many pictures, on the devices of a fleet.

use std::fmt;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use anyhow::{Context, Error, Result};
use cutout_imaging::{DecodeLimits, Image};
use cutout_sam::{
    AutoMask, Everything as Options, EverythingError, Fault, Faulty, Fleet, FleetAnswer,
    FleetEvent, Phase, Progress as EverythingProgress, Sam,
};

use super::Found;
use crate::failure::Usage;
use crate::progress::Progress;
use crate::stdio;

/// What is searched, and how.
pub(super) struct Search<'a> {
    pub(super) pictures: &'a [PathBuf],
    pub(super) options: &'a Options,
    pub(super) fleet: &'a Fleet,
}

/// Why a picture has no masks.
struct Failure {
    error: Error,
    fault: Fault,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl Faulty for Failure {
    fn fault(&self) -> Fault {
        self.fault
    }
}

impl Search<'_> {
    /// Searches the pictures of these numbers. `take` gets each with its number, in their order, and can end the search with an
    /// error.
    pub(super) fn run(
        &self,
        numbers: &[usize],
        take: &mut dyn FnMut(usize, Result<Found>) -> Result<()>,
    ) -> Result<()> {
        let is_shared = self.fleet.sams().len() > 1;
        let bar = is_shared.then(|| Progress::bar(numbers.len() as u64, "pictures"));
        let mut failed = None;
        let outcome = self.fleet.run(
            numbers,
            |&number| read(&self.pictures[number]),
            |sam, &number, image| self.masks(sam, number, image, is_shared),
            &mut |event| {
                let taken = match event {
                    FleetEvent::Done(answer) => {
                        bar.iter().for_each(|bar| bar.set(answer.index as u64 + 1));
                        take(numbers[answer.index], found(answer))
                    }
                    FleetEvent::Lost { device, reason, .. } => {
                        stdio::warn(&format!("{device}: {reason}"));
                        Ok(())
                    }
                };
                match taken {
                    Ok(()) => ControlFlow::Continue(()),
                    Err(error) => {
                        failed = Some(error);
                        ControlFlow::Break(())
                    }
                }
            },
        );
        match failed {
            Some(error) => Err(error),
            None => Ok(outcome?),
        }
    }

    /// The masks of a picture. Where pictures are not shared among devices, a line shows what is done.
    fn masks(
        &self,
        sam: &Sam,
        number: usize,
        image: &Image,
        is_shared: bool,
    ) -> Result<Vec<AutoMask>, Failure> {
        let path = self.pictures[number].display();
        let position = match self.pictures.len() {
            1 => String::new(),
            many => format!("{}/{many} ", number + 1),
        };
        let bar = (!is_shared).then(|| Progress::spinner(format!("{position}{path}: encoding")));
        let mut report = |progress: EverythingProgress| {
            if let Some(bar) = &bar {
                bar.show(&progress, &format!("{position}{path}"));
            }
            ControlFlow::Continue(())
        };
        sam.everything(image, self.options, &mut report).map_err(|error| {
            let fault = error.fault();
            let error = match error {
                EverythingError::Option(error) => Usage::error(error.to_string()),
                error @ (EverythingError::CropsNeedThePicture(_)
                | EverythingError::Stopped
                | EverythingError::Segment(_)) => Error::new(error).context(path.to_string()),
            };
            Failure { error, fault }
        })
    }
}

impl Progress {
    /// Shows how far a search for masks is.
    fn show(&self, progress: &EverythingProgress, picture: &str) {
        if progress.points > 0 {
            self.set_length(progress.points as u64);
            self.set(progress.points_done as u64);
        }
        let what = match progress.phase {
            Phase::Embedding => "encoding".to_owned(),
            Phase::Decoding => format!("{} masks", progress.masks),
            Phase::Cleaning => "small regions".to_owned(),
        };
        self.say(format!("{picture}: {what}"));
    }
}

fn read(path: &Path) -> Result<Image, Failure> {
    let image = cutout_imaging::open(path, &DecodeLimits::default());
    image.map_err(|error| Failure { error: error.into(), fault: Fault::Item })
}

/// The picture and its masks. If only part of its file is intact, says so on standard error.
fn found(answer: FleetAnswer<Image, Vec<AutoMask>, Failure>) -> Result<Found> {
    let FleetAnswer { picture, answer, .. } = answer;
    if let Some(warning) = picture.as_ref().and_then(Image::warning) {
        stdio::warn(warning);
    }
    let masks = answer.map_err(|failure| failure.error)?;
    let image = picture.context("what was answered was read")?;
    Ok(Found { image, masks })
}
