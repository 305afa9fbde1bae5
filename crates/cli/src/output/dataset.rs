//! A COCO data set of many pictures, written while they are processed.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Result;
use cutout_files::PendingFile;
use cutout_imaging::WriteError;
use serde::Serialize;

use super::{Category, Info, Picture};

/// A data set that is being written. Annotations go to a temporary file beside `path` as they come; only the list of
/// pictures is kept in memory. The file appears under its name when it is finished.
pub(crate) struct Dataset {
    path: PathBuf,
    file: PendingFile,
    pictures: Vec<Picture>,
    annotations: usize,
}

/// An annotation in the data set.
#[derive(Serialize)]
struct Numbered<'a, T> {
    id: usize,
    image_id: usize,
    category_id: usize,
    iscrowd: u8,
    #[serde(flatten)]
    annotation: &'a T,
}

impl Dataset {
    /// Opens the temporary file.
    pub(crate) fn begin(path: &Path) -> Result<Self> {
        let file = PendingFile::create(path).map_err(|source| WriteError::new(path, source))?;
        let mut dataset =
            Dataset { path: path.to_owned(), file, pictures: Vec::new(), annotations: 0 };
        dataset.put(b"{\"annotations\":[")?;
        Ok(dataset)
    }

    /// Number of the next picture, counted from 1.
    pub(crate) fn next_picture(&self) -> usize {
        self.pictures.len() + 1
    }

    /// Adds a picture with its annotations.
    pub(crate) fn add<T: Serialize>(
        &mut self,
        picture: Picture,
        annotations: impl Iterator<Item = Result<T>>,
    ) -> Result<()> {
        let image_id = self.next_picture();
        for annotation in annotations {
            let comma: &[u8] = if self.annotations > 0 { b",\n" } else { b"\n" };
            self.annotations += 1;
            let numbered = Numbered {
                id: self.annotations,
                image_id,
                category_id: 1,
                iscrowd: 0,
                annotation: &annotation?,
            };
            self.put(comma)?;
            self.put(&serde_json::to_vec(&numbered)?)?;
        }
        self.pictures.push(picture);
        Ok(())
    }

    /// Completes the file and gives it its name.
    pub(crate) fn finish(mut self, model: String) -> Result<()> {
        let rest = serde_json::json!({
            "images": self.pictures,
            "categories": [Category::of_any_object()],
            "info": Info { description: model },
        });
        // The object goes on after the array of annotations.
        let rest = rest.to_string();
        self.put(b"\n],\n")?;
        self.put(&rest.as_bytes()[1..])?;
        let Dataset { path, file, .. } = self;
        Ok(file.finish().map_err(|source| WriteError::new(&path, source))?)
    }

    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        let written = self.file.write_all(bytes);
        Ok(written.map_err(|source| WriteError::new(&self.path, source))?)
    }
}
