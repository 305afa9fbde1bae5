//! The built-in model: small, trained by this project on synthetic scenes. See `docs/builtin-model.md` and `training/`.

use std::sync::Arc;

use cutout_graph::Profile;
use cutout_tensor::Bytes;
use cutout_weights::{Checkpoint, WeightsError};

use crate::sam::{Sam, SamError};

/// Bytes aligned for the tensors in them.
#[repr(C, align(64))]
struct Aligned<Bytes: ?Sized>(Bytes);

static MODEL: &Aligned<[u8]> = &Aligned(*include_bytes!("../../builtin/model.safetensors"));

/// The embedded file as the bytes of a checkpoint.
struct EmbeddedFile;

impl AsRef<[u8]> for EmbeddedFile {
    fn as_ref(&self) -> &[u8] {
        &MODEL.0
    }
}

impl Bytes for EmbeddedFile {}

impl Sam {
    /// The small model that ships inside the crate.
    pub fn builtin() -> Result<Self, SamError> {
        Sam::builtin_with(Profile::default())
    }

    /// The built-in model with the given profile.
    pub fn builtin_with(profile: Profile) -> Result<Self, SamError> {
        Sam::from_checkpoint(&builtin_checkpoint()?, profile)
    }
}

/// The bytes of the file of the built-in model.
pub fn builtin_bytes() -> &'static [u8] {
    &MODEL.0
}

/// The file of the built-in model.
pub fn builtin_checkpoint() -> Result<Checkpoint, WeightsError> {
    Checkpoint::from_bytes("the built-in model", Arc::new(EmbeddedFile))
}
