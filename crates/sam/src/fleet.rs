//! `Fleet`: a model opened on several devices, which take pictures from one queue.
//!
//! ```text
//! items ─ read (threads) ─▶ read pictures ─▶ device 0 ─┐
//!                                       └──▶ device 1 ─┴─▶ answers, put in order ─▶ the caller's thread
//! ```
//!
//! A device that fails leaves the queue, and the item it had goes to another device once.

use std::fmt;
use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use cutout_graph::{Backend, Device, Profile};
use cutout_parallel::Pool;
use cutout_weights::Checkpoint;

use crate::device::{self, DeviceError};
use crate::model::builtin::builtin_checkpoint;
use crate::model::load::load;
use crate::profiles::{completed, profile_beside};
use crate::sam::{Sam, SamError};

mod devices;
mod fault;
mod queue;

pub use devices::Devices;
pub use fault::{Fault, Faulty};

/// A model on several devices. Each device has its own [`Sam`]; all read the same mapped checkpoint, and what is computed from
/// weights alone is shared. Devices of one kind give the same answers, so that results do not depend on which device has
/// answered.
pub struct Fleet {
    sams: Vec<Sam>,
    left_out: Vec<DeviceError>,
}

/// What [`Fleet::run`] tells its caller, on the caller's thread.
#[derive(Debug)]
pub enum FleetEvent<P, A, E> {
    /// The next item is done. Items come in their order, each exactly once.
    Done(FleetAnswer<P, A, E>),
    /// A device failed and has left the queue; others go on.
    Lost {
        /// The device, as [`Sam::device`] names it.
        device: String,
        /// Number of the device in [`Fleet::sams`].
        number: usize,
        /// Why it failed.
        reason: String,
    },
}

/// The outcome of one item.
#[derive(Debug)]
pub struct FleetAnswer<P, A, E> {
    /// Number of the item.
    pub index: usize,
    /// What was read; `None` if reading failed.
    pub picture: Option<P>,
    /// The answer, or why there is none.
    pub answer: Result<A, E>,
    /// How long the device waited for this item.
    pub waited: Duration,
}

/// Why a run over many items stops.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FleetError {
    /// Every device failed.
    #[error("{}", no_device_left(.0))]
    NoDeviceLeft(Vec<String>),
    /// The caller asked to stop.
    #[error("stopped")]
    Stopped,
    /// A thread cannot be started.
    #[error("no thread for the run: {0}")]
    Thread(String),
}

fn no_device_left(reasons: &[String]) -> String {
    match reasons {
        [only] => only.clone(),
        several => format!("every device failed: {}", several.join("; ")),
    }
}

impl fmt::Debug for Fleet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.sams.iter().map(Sam::device)).finish()
    }
}

impl From<Sam> for Fleet {
    /// A fleet of one device.
    fn from(sam: Sam) -> Self {
        Fleet { sams: vec![sam], left_out: Vec::new() }
    }
}

impl Fleet {
    /// Opens a checkpoint on devices such as `"cuda:all"`. A `cutout.toml` in the same folder, if present, sets the profile,
    /// except for the device.
    pub fn open(path: impl AsRef<Path>, devices: &Devices) -> Result<Self, SamError> {
        let path = path.as_ref();
        Fleet::open_with(path, devices, profile_beside(path)?.unwrap_or_default())
    }

    /// Opens a checkpoint on devices with a profile, whose device is not looked at. Its threads are divided among the devices; its
    /// limit on the memory of a GPU holds for each.
    pub fn open_with(
        path: impl AsRef<Path>,
        devices: &Devices,
        profile: Profile,
    ) -> Result<Self, SamError> {
        Fleet::from_checkpoint(&Checkpoint::open(path)?, devices, profile)
    }

    /// The built-in model on devices, as [`Fleet::open_with`].
    pub fn builtin_with(devices: &Devices, profile: Profile) -> Result<Self, SamError> {
        Fleet::from_checkpoint(&builtin_checkpoint()?, devices, profile)
    }

    /// The model in an open checkpoint on devices, as [`Fleet::open_with`].
    pub fn from_checkpoint(
        checkpoint: &Checkpoint,
        devices: &Devices,
        profile: Profile,
    ) -> Result<Self, SamError> {
        let profile = completed(checkpoint, profile)?;
        let (mut opened, mut left_out) = (Vec::new(), Vec::new());
        let members = devices.members()?;
        let threads = (device::threads(&profile) / members.len().max(1)).max(1);
        for member in members {
            let threads =
                if devices.are_several() { NonZeroUsize::new(threads) } else { profile.threads };
            let profile = Profile { device: member, threads, ..profile.clone() };
            match device::open(profile) {
                Ok(member) => opened.push(member),
                Err(error) if devices.may_leave_out() => left_out.push(error),
                Err(error) => return Err(error.into()),
            }
        }
        if opened.is_empty() {
            let first = left_out.into_iter().next().unwrap_or(DeviceError::None);
            return Err(first.into());
        }
        let (config, weights) = load(checkpoint)?;
        let weights = Arc::new(weights);
        let member = |member| Sam::member(checkpoint, &config, &weights, member);
        let sams = opened.into_iter().map(member).collect::<Result<_, _>>()?;
        Ok(Fleet { sams, left_out })
    }

    /// The model in an open checkpoint on given backends with a profile each; work on the host runs on the threads of their pools.
    ///
    /// # Errors
    /// If there is no backend, or the checkpoint cannot be used.
    pub fn on(
        checkpoint: &Checkpoint,
        backends: Vec<(Arc<dyn Backend>, Arc<Pool>, Profile)>,
    ) -> Result<Self, SamError> {
        if backends.is_empty() {
            return Err(DeviceError::None.into());
        }
        let (config, weights) = load(checkpoint)?;
        let weights = Arc::new(weights);
        let member = |(backend, pool, profile)| {
            Sam::member(checkpoint, &config, &weights, device::Opened { backend, pool, profile })
        };
        let sams = backends.into_iter().map(member).collect::<Result<_, _>>()?;
        Ok(Fleet { sams, left_out: Vec::new() })
    }

    /// The model on each device.
    pub fn sams(&self) -> &[Sam] {
        &self.sams
    }

    /// The model on the first device: for questions that need only one, such as [`Sam::description`].
    pub fn first(&self) -> &Sam {
        &self.sams[0]
    }

    /// The cards of `cuda:all` that cannot be used, and why.
    pub fn left_out(&self) -> &[DeviceError] {
        &self.left_out
    }

    /// Answers all items: `read` reads an item on threads of its own, a few items ahead; `answer` runs on the thread of the device
    /// that has taken the item; `deliver` is called on the caller's thread, for one item after the other in their order, and
    /// can stop the run. At most a few items for each device are held in memory.
    ///
    /// An answer that fails by the fault of its device ([`Faulty`]) is tried once on another device. A device that failed leaves
    /// the queue. So does one without memory for an item that another device could answer; if no other device can, the item's
    /// answer is the error.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::ops::ControlFlow;
    /// use cutout_sam::{Devices, Fleet, FleetEvent, Masks, Prompt, SegmentError, imaging};
    ///
    /// let fleet = Fleet::open("sam2.1_hiera_tiny.pt", &Devices::named("cuda:all")?)?;
    /// let paths = ["a.jpg", "b.jpg", "c.jpg"];
    /// let read = |path: &&str| Ok(imaging::open(path, &imaging::DecodeLimits::default()).expect("it is a picture"));
    /// fleet.run(
    ///     &paths,
    ///     read,
    ///     |sam, _, image| sam.embed(image)?.segment(&Prompt::point(520, 380)),
    ///     &mut |event: FleetEvent<_, Masks, SegmentError>| {
    ///         match event {
    ///             FleetEvent::Done(done) => println!("{}: {:?}", paths[done.index], done.answer.map(|masks| masks.best().iou())),
    ///             FleetEvent::Lost { device, reason, .. } => println!("{device} is lost: {reason}"),
    ///         }
    ///         ControlFlow::Continue(())
    ///     },
    /// )?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Panics
    /// If `read` or `answer` panics.
    pub fn run<I, P, A, E>(
        &self,
        items: &[I],
        read: impl Fn(&I) -> Result<P, E> + Sync,
        answer: impl Fn(&Sam, &I, &P) -> Result<A, E> + Sync,
        deliver: &mut dyn FnMut(FleetEvent<P, A, E>) -> ControlFlow<()>,
    ) -> Result<(), FleetError>
    where
        I: Sync,
        P: Send + Sync,
        A: Send,
        E: Faulty + Send,
    {
        let names: Vec<String> = self.sams.iter().map(Sam::device).collect();
        let work = queue::Work {
            items: items.len(),
            devices: &names,
            read: &|index: usize| read(&items[index]),
            answer: &|device: usize, index: usize, picture: &P| {
                answer(&self.sams[device], &items[index], picture)
            },
        };
        queue::run(&work, deliver)
    }
}

/// The device of a plain profile, as a fleet of one.
impl From<Device> for Devices {
    fn from(device: Device) -> Self {
        Devices::One(device)
    }
}
