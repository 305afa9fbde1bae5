//! Names of several devices.

use std::fmt;
use std::str::FromStr;

use cutout_graph::{Device, MAX_THREADS};

use crate::device::{DeviceError, cards};

/// The devices of a [`Fleet`](super::Fleet), as `--device` names them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Devices {
    /// One device: `auto`, `cpu`, `cuda` or `cuda:N`.
    One(Device),
    /// Every NVIDIA GPU that can be used: `cuda:all`.
    AllCuda,
    /// The NVIDIA GPUs of these numbers: `cuda:0,2`.
    Cuda(Vec<usize>),
    /// The processor this many times, with a share of the threads each: `cpux4`.
    Cpu(usize),
}

/// Most devices in a list: more than any machine has.
const MOST: usize = 64;

impl Devices {
    /// The devices of a name.
    ///
    /// # Errors
    /// A message that says what is accepted.
    pub fn named(name: &str) -> Result<Self, DeviceError> {
        name.parse().map_err(DeviceError::Name)
    }

    /// Whether this can be more than one device.
    pub fn are_several(&self) -> bool {
        !matches!(self, Devices::One(_))
    }

    /// At most `count` of these devices: more would have nothing to do. Of `cuda:all` it is the first card or all of them, because
    /// how many there are is known when they are opened.
    #[must_use]
    pub fn at_most(self, count: usize) -> Self {
        match self {
            several if count <= 1 => Devices::One(several.first()),
            Devices::Cuda(numbers) => Devices::Cuda(numbers.into_iter().take(count).collect()),
            Devices::Cpu(times) => Devices::Cpu(times.min(count)),
            Devices::One(_) | Devices::AllCuda => self,
        }
    }

    /// The first device.
    pub fn first(&self) -> Device {
        match self {
            Devices::One(device) => device.clone(),
            Devices::AllCuda => Device::Cuda(0),
            Devices::Cuda(numbers) => Device::Cuda(numbers.first().copied().unwrap_or(0)),
            Devices::Cpu(_) => Device::Cpu,
        }
    }

    /// Whether a device that cannot be opened is left out.
    pub(super) fn may_leave_out(&self) -> bool {
        *self == Devices::AllCuda
    }

    /// Each device.
    pub(super) fn members(&self) -> Result<Vec<Device>, DeviceError> {
        Ok(match self {
            Devices::One(device) => vec![device.clone()],
            Devices::AllCuda => {
                let cards = cards().map_err(|reason| DeviceError::NoCards { reason })?;
                (0..cards.len()).map(Device::Cuda).collect()
            }
            Devices::Cuda(numbers) => numbers.iter().copied().map(Device::Cuda).collect(),
            Devices::Cpu(times) => vec![Device::Cpu; *times],
        })
    }
}

impl FromStr for Devices {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let listed = match text.split_once(':') {
            Some(("cuda", "all")) => Some(Devices::AllCuda),
            Some(("cuda", list)) if list.contains(',') => numbers(list).map(Devices::Cuda),
            Some(_) | None => {
                let times = text.strip_prefix("cpux").and_then(|times| times.parse().ok());
                times.filter(|times| (1..=MAX_THREADS).contains(times)).map(Devices::Cpu)
            }
        };
        match listed {
            Some(devices) => Ok(devices),
            None => Device::try_from(text.to_owned())
                .map(Devices::One)
                .map_err(|error| format!("{error}, or of several: cuda:all, cuda:0,2, cpux4")),
        }
    }
}

/// Different numbers, separated by commas.
fn numbers(list: &str) -> Option<Vec<usize>> {
    let mut numbers = Vec::new();
    for digits in list.split(',') {
        let number = digits.parse().ok().filter(|number| !numbers.contains(number))?;
        numbers.push(number);
    }
    Some(numbers).filter(|numbers| numbers.len() <= MOST)
}

impl fmt::Display for Devices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Devices::One(device) => f.write_str(&String::from(device.clone())),
            Devices::AllCuda => f.write_str("cuda:all"),
            Devices::Cuda(numbers) => {
                let numbers: Vec<String> = numbers.iter().map(usize::to_string).collect();
                write!(f, "cuda:{}", numbers.join(","))
            }
            Devices::Cpu(times) => write!(f, "cpux{times}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_and_shown() {
        for (name, devices) in [
            ("auto", Devices::One(Device::Auto)),
            ("cpu", Devices::One(Device::Cpu)),
            ("cuda:3", Devices::One(Device::Cuda(3))),
            ("cuda:all", Devices::AllCuda),
            ("cuda:0,2", Devices::Cuda(vec![0, 2])),
            ("cpux4", Devices::Cpu(4)),
        ] {
            assert_eq!(name.parse(), Ok(devices.clone()), "{name}");
            assert_eq!(devices.to_string(), name);
            assert_eq!(
                devices.are_several(),
                name.contains(',') || name.ends_with("all") || name.contains('x')
            );
        }
        let wrong = [
            "", "cuda:0,0", "cuda:0,", "cuda:,", "cuda:1,x", "cpux0", "cpux", "cpux9999",
            "cpu:all", "gpu",
        ];
        for name in wrong {
            let error = name.parse::<Devices>().unwrap_err();
            assert!(
                error.contains("auto, cpu, cuda, cuda:N") && error.contains("cuda:all"),
                "{name}: {error}"
            );
        }
        let long: Vec<String> = (0..=MOST).map(|number| number.to_string()).collect();
        assert!(format!("cuda:{}", long.join(",")).parse::<Devices>().is_err());
    }

    #[test]
    fn no_more_devices_than_pictures() {
        assert_eq!(Devices::Cuda(vec![4, 1, 2]).at_most(2), Devices::Cuda(vec![4, 1]));
        assert_eq!(Devices::Cuda(vec![4, 1, 2]).at_most(1), Devices::One(Device::Cuda(4)));
        assert_eq!(Devices::Cpu(8).at_most(0), Devices::One(Device::Cpu));
        assert_eq!(Devices::AllCuda.at_most(3), Devices::AllCuda);
        assert_eq!(Devices::AllCuda.at_most(1), Devices::One(Device::Cuda(0)));
        assert_eq!(Devices::Cpu(2).members().unwrap(), [Device::Cpu, Device::Cpu]);
    }
}
