//! Where profiles are: in a file of their own, beside a checkpoint, and in the metadata of a checkpoint.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use cutout_graph::{Precision, Profile, ProfileError, StoredProfile};
use cutout_weights::{Checkpoint, MetadataValue};

use crate::sam::SamError;

/// File name of the profile in a checkpoint's folder.
const PROFILE_FILE: &str = "cutout.toml";

/// Where the profile of a checkpoint is, if there is one.
pub fn profile_path_beside(checkpoint: &Path) -> PathBuf {
    checkpoint.with_file_name(PROFILE_FILE)
}

/// Reads the profile in the folder of a checkpoint, if there is one.
pub fn profile_beside(checkpoint: &Path) -> Result<Option<Profile>, SamError> {
    let path = profile_path_beside(checkpoint);
    if path.exists() { read_profile(&path).map(Some) } else { Ok(None) }
}

/// Reads a profile from its file.
pub fn read_profile(path: &Path) -> Result<Profile, SamError> {
    let path = path.to_owned();
    match profile_text(&path) {
        Err(source) => Err(SamError::ProfileFile { path, source }),
        Ok(text) => Profile::parse(&text).map_err(|source| SamError::Profile { path, source }),
    }
}

/// Most bytes of a profile.
const MAX_PROFILE_BYTES: u64 = 1 << 20;

fn profile_text(path: &Path) -> std::io::Result<String> {
    let mut text = String::new();
    let length = File::open(path)?.take(MAX_PROFILE_BYTES + 1).read_to_string(&mut text)?;
    if length as u64 > MAX_PROFILE_BYTES {
        let message = format!("longer than the {MAX_PROFILE_BYTES} bytes allowed");
        return Err(std::io::Error::new(std::io::ErrorKind::FileTooLarge, message));
    }
    Ok(text)
}

/// The profile that a checkpoint carries in its metadata, if it does.
pub fn stored_profile(checkpoint: &Checkpoint) -> Result<Option<StoredProfile>, SamError> {
    let Some(value) = checkpoint.metadata().get(StoredProfile::KEY) else { return Ok(None) };
    let parsed = match value {
        MetadataValue::Text(text) => StoredProfile::parse(text),
        MetadataValue::Unsigned(_)
        | MetadataValue::Signed(_)
        | MetadataValue::Float(_)
        | MetadataValue::Bool(_)
        | MetadataValue::List(_) => {
            Err(ProfileError { line: None, message: "it is no text".to_owned() })
        }
    };
    let file = || checkpoint.file().to_owned();
    parsed.map(Some).map_err(|source| SamError::StoredProfile { file: file(), source })
}

/// The profile, with the parts that the checkpoint's own one names and it does not. Only 8-bit integers are measured and stored.
pub(crate) fn completed(
    checkpoint: &Checkpoint,
    mut profile: Profile,
) -> Result<Profile, SamError> {
    if profile.precision == Precision::Int8
        && let Some(stored) = stored_profile(checkpoint)?
    {
        stored.complete(&mut profile);
    }
    Ok(profile)
}
