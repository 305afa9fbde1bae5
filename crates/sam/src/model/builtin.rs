//! The model inside the crate: small, trained by this project on scenes it draws itself. `docs/builtin-model.md` says what it is
//! good at; `training/` makes it.

use std::sync::Arc;

use cutout_graph::Profile;
use cutout_tensor::Bytes;
use cutout_weights::Checkpoint;

use crate::sam::{Sam, SamError};

/// Bytes that start where the tensors inside them may.
#[repr(C, align(64))]
struct Aligned<Bytes: ?Sized>(Bytes);

static MODEL: &Aligned<[u8]> = &Aligned(*include_bytes!("../../builtin/model.safetensors"));

/// The file as a checkpoint holds it.
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

    /// The same, run as `profile` says.
    pub fn builtin_with(profile: Profile) -> Result<Self, SamError> {
        let checkpoint = Checkpoint::from_bytes("the built-in model", Arc::new(EmbeddedFile))?;
        Sam::from_checkpoint(&checkpoint, profile)
    }
}
