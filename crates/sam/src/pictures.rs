//! Pictures as inputs of the image encoder: resized and normalised on the host, or on a device whose values are not on the host.

use std::sync::{Arc, Mutex, PoisonError};

use cutout_graph::{DeviceValue, Ports};
use cutout_imaging::{Fit, Image, ImageError, Mapping, Preprocess, Size};
use cutout_tensor::{Shape, Tensor, TensorError};

use crate::model::{Model, ModelError};
use crate::parts::{FitPicture, Picture, PictureTables, Pixels, SinglePixels, StackPictures};
use crate::sam::Sam;

/// Bytes of the largest picture that a device resizes. Larger ones take longer to copy than the host takes to resize them (H200: 4.4 ms from the bytes of
/// 1920x1080 to SAM 2.1 tiny's features, where the host takes 3.6 to resize; 25 ms from 4000x3000, where it takes 8.3).
const MOST_BYTES: usize = 12 << 20;

/// Sizes of pictures whose windows are kept.
const MOST_KEPT: usize = 4;

/// What pictures of one size need besides their pixels, on the device.
struct KnownSize {
    size: Size,
    fit: Fit,
    part: FitPicture,
    tables: PictureTables<DeviceValue>,
}

/// The sizes of recent pictures, the last one last.
#[derive(Default)]
pub(crate) struct KnownSizes(Mutex<Vec<Arc<KnownSize>>>);

impl KnownSizes {
    /// Drops all values.
    pub(crate) fn clear(&self) {
        self.locked().clear();
    }

    /// A panic while the lock is held leaves the list usable.
    fn locked(&self) -> std::sync::MutexGuard<'_, Vec<Arc<KnownSize>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn of(
        &self,
        (preprocess, mapping): (&Preprocess, &Mapping),
        model: &Model,
    ) -> Result<Arc<KnownSize>, InputError> {
        let mut known = self.locked();
        let is_it =
            |one: &Arc<KnownSize>| one.size == mapping.original && one.fit == preprocess.fit;
        let found = match known.iter().position(is_it) {
            Some(index) => known.remove(index),
            None => Arc::new(KnownSize::new(preprocess, mapping, model)?),
        };
        if known.len() >= MOST_KEPT {
            known.remove(0);
        }
        known.push(Arc::clone(&found));
        Ok(found)
    }
}

/// Why a picture cannot become an input.
pub(crate) enum InputError {
    Image(ImageError),
    Model(ModelError),
}

impl From<ImageError> for InputError {
    fn from(error: ImageError) -> Self {
        InputError::Image(error)
    }
}

impl From<ModelError> for InputError {
    fn from(error: ModelError) -> Self {
        InputError::Model(error)
    }
}

impl KnownSize {
    fn new(preprocess: &Preprocess, mapping: &Mapping, model: &Model) -> Result<Self, InputError> {
        let (part, tables) = FitPicture::new(preprocess, mapping)?;
        let tables =
            PictureTables::<()>::try_map(tables, "", &mut |_, table| model.upload(&table))?;
        Ok(KnownSize { size: mapping.original, fit: preprocess.fit, part, tables })
    }
}

impl Sam {
    /// The input of the image encoder for one picture, `f32[1, side, side, 3]`, on the device, and where the picture lies in it.
    pub(crate) fn input<E: From<ImageError> + From<ModelError>>(
        &self,
        preprocess: &Preprocess,
        image: &Image,
    ) -> Result<(DeviceValue, Mapping), E> {
        self.input_on_device(preprocess, image).map_err(|error| match error {
            InputError::Image(error) => error.into(),
            InputError::Model(error) => error.into(),
        })
    }

    fn input_on_device(
        &self,
        preprocess: &Preprocess,
        image: &Image,
    ) -> Result<(DeviceValue, Mapping), InputError> {
        let model = self.model();
        if model.backend().values_are_on_host() || image.as_rgb().len() > MOST_BYTES {
            let (pixels, mapping) = preprocess.run(image, self.pool())?;
            return Ok((model.upload(&pixels)?, mapping));
        }
        let mapping = preprocess.mapping(image.size())?;
        let known = self.known_sizes().of((preprocess, &mapping), model)?;
        let shape = Shape::from([image.height(), image.width(), 3]);
        let bytes = model.backend().upload_bytes(&shape, image.as_rgb());
        let bytes = bytes.map_err(ModelError::from)?;
        let inputs = Picture { bytes, tables: known.tables.clone() };
        Ok((model.run(&known.part, inputs)?.pixels, mapping))
    }

    /// The input of the image encoder for several pictures, `f32[pictures, side, side, 3]`, and where each lies in its own.
    pub(crate) fn inputs<E: From<ImageError> + From<ModelError>>(
        &self,
        images: &[Image],
    ) -> Result<(DeviceValue, Vec<Mapping>), E> {
        let (preprocess, model) = (self.preprocessing(), self.model());
        let mut mappings = Vec::new();
        if images.len() > 1 && model.backend().values_are_on_host() {
            let mut all = Vec::new();
            for image in images {
                let (pixels, mapping) = preprocess.run(image, self.pool())?;
                all.push(pixels);
                mappings.push(mapping);
            }
            return Ok((model.upload(&stacked(&all).map_err(ModelError::from)?)?, mappings));
        }
        let mut pictures = Vec::new();
        for image in images {
            let (pixels, mapping) = self.input::<E>(&preprocess, image)?;
            pictures.push(Pixels { pixels });
            mappings.push(mapping);
        }
        let part = StackPictures { pictures: pictures.len() };
        let stacked = match pictures.pop() {
            Some(Pixels { pixels }) if pictures.is_empty() => pixels,
            last => {
                pictures.extend(last);
                model.run(&part, SinglePixels { pictures })?.pixels
            }
        };
        Ok((stacked, mappings))
    }
}

/// Tensors `f32[1, ..]` of one shape as `f32[count, ..]`.
fn stacked(tensors: &[Tensor]) -> Result<Tensor, TensorError> {
    let [first, ..] = tensors else {
        return Err(TensorError::Shape("no pictures".to_owned()));
    };
    let mut values = Vec::with_capacity(tensors.len() * first.elements());
    for tensor in tensors {
        values.extend_from_slice(tensor.as_slice::<f32>()?);
    }
    let mut shape = first.shape().clone();
    shape[0] = tensors.len();
    Tensor::from_vec(shape, values)
}
