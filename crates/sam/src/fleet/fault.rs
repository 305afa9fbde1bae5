//! Whether an error is the fault of a device.

use cutout_graph::{CompileError, RunError};

use crate::everything::EverythingError;
use crate::find::FindError;
use crate::model::ModelError;
use crate::scene::SegmentError;

/// What an error is the fault of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The picture or what is asked of it: every device would fail.
    Item,
    /// The memory of the device: a device with more could answer.
    Memory,
    /// The device: it cannot be used any more.
    Device,
}

/// An error that says what it is the fault of.
pub trait Faulty: std::fmt::Display {
    /// What the error is the fault of.
    fn fault(&self) -> Fault;
}

impl Faulty for RunError {
    fn fault(&self) -> Fault {
        match self {
            RunError::Device(_) => Fault::Device,
            RunError::DeviceMemory { .. } => Fault::Memory,
            RunError::UnknownInput { .. }
            | RunError::MissingInput(_)
            | RunError::RepeatedInput(_)
            | RunError::InputCount { .. }
            | RunError::InputType { .. }
            | RunError::Bind(_)
            | RunError::Tensor(_)
            | RunError::Value { .. }
            | RunError::OutOfMemory(_)
            | RunError::Scratch { .. } => Fault::Item,
        }
    }
}

impl Faulty for CompileError {
    fn fault(&self) -> Fault {
        match self {
            CompileError::Device { .. } => Fault::Device,
            CompileError::DeviceMemory { .. } => Fault::Memory,
            CompileError::Verify(_)
            | CompileError::Bind(_)
            | CompileError::Weight { .. }
            | CompileError::Memory { .. }
            | CompileError::Unsupported { .. } => Fault::Item,
        }
    }
}

impl Faulty for ModelError {
    fn fault(&self) -> Fault {
        match self {
            ModelError::Compile(error) => error.fault(),
            ModelError::Run(error) => error.fault(),
            ModelError::Build(_)
            | ModelError::NoDetector
            | ModelError::NoInteractiveHead
            | ModelError::NoMemory
            | ModelError::NotFinite(_)
            | ModelError::Tensor(_) => Fault::Item,
        }
    }
}

impl Faulty for SegmentError {
    fn fault(&self) -> Fault {
        match self {
            SegmentError::Model(error) => error.fault(),
            SegmentError::Prompt(_) | SegmentError::Image(_) => Fault::Item,
        }
    }
}

impl Faulty for EverythingError {
    fn fault(&self) -> Fault {
        match self {
            EverythingError::Segment(error) => error.fault(),
            EverythingError::Option(_)
            | EverythingError::CropsNeedThePicture(_)
            | EverythingError::Stopped => Fault::Item,
        }
    }
}

impl Faulty for FindError {
    fn fault(&self) -> Fault {
        match self {
            FindError::Model(error) => error.fault(),
            FindError::NotAFinder { .. }
            | FindError::Nothing
            | FindError::Phrase { .. }
            | FindError::Exemplar(_)
            | FindError::NoPoints
            | FindError::OutOfRange { .. }
            | FindError::Image(_) => Fault::Item,
        }
    }
}
