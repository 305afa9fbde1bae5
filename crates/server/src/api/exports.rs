//! Files of masks.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use cutout_imaging::{
    Image, ImageError, Mask, MaskDepth, Rle, Size, cut_out, distinct_colour, encode_image,
    encode_labels, encode_mask, encode_rgba, label_map, overlay_with,
};

use super::answers::tolerance;
use super::documents::{coco, geojson, svg};
use super::types::{ExportObject, ExportRequest, Format};
use crate::problem::Problem;
use crate::server::{App, parse};

/// Longest name of an object or picture, in bytes.
const NAME: usize = 1000;

/// An object whose mask is decoded.
pub(super) struct Object {
    pub(super) name: String,
    pub(super) rle: Rle,
    pub(super) score: Option<f32>,
    pub(super) colour: [u8; 3],
}

/// What is written into a file.
pub(super) struct Export {
    pub(super) format: Format,
    pub(super) file_name: String,
    pub(super) size: Size,
    pub(super) objects: Vec<Object>,
    pub(super) simplify: Option<f64>,
    pub(super) model: String,
}

/// `POST /api/v1/images/{id}/export`.
pub(super) async fn export(
    State(app): State<App>,
    Path(id): Path<String>,
    body: Bytes,
) -> Result<Response, Problem> {
    let request: ExportRequest = parse(&body)?;
    app.check_count("objects", request.objects.len())?;
    let picture = app.picture(&id)?;
    let own = Arc::clone(&picture);
    let format = request.format;
    let file = app.off_thread(move || {
        let export = Export::new(request, own.size(), &own.model)?;
        export.file(&own.image)
    });
    let bytes = file.await?;
    let (kind, name) = format.file();
    let attachment = format!("attachment; filename=\"{name}\"");
    let headers = [(header::CONTENT_TYPE, kind), (header::CONTENT_DISPOSITION, &*attachment)];
    Ok((headers, bytes).into_response())
}

/// Whether the objects of a request fit a picture of this size.
pub(super) fn is_valid(request: ExportRequest, size: Size) -> bool {
    Export::new(request, size, "").is_ok()
}

impl Format {
    /// Media type, and name of the file.
    fn file(self) -> (&'static str, &'static str) {
        match self {
            Format::Mask => ("image/png", "mask.png"),
            Format::Labels => ("image/png", "labels.png"),
            Format::Cutout => ("image/png", "cutout.png"),
            Format::Overlay => ("image/png", "overlay.png"),
            Format::Svg => ("image/svg+xml", "masks.svg"),
            Format::Coco => ("application/json", "coco.json"),
            Format::Geojson => ("application/geo+json", "masks.geojson"),
        }
    }
}

impl Export {
    fn new(request: ExportRequest, size: Size, model: &str) -> Result<Self, Problem> {
        let names = request.objects.iter().map(|object| &object.name);
        if names.chain([&request.file_name]).any(|name| name.len() > NAME) {
            return Err(Problem::Invalid(format!("a name has more than {NAME} bytes")));
        }
        let objects = request.objects.into_iter().enumerate();
        Ok(Export {
            format: request.format,
            file_name: request.file_name,
            size,
            objects: objects
                .map(|(index, object)| Object::new(index, object, size))
                .collect::<Result<_, _>>()?,
            simplify: tolerance(request.simplify)?,
            model: model.to_owned(),
        })
    }

    fn file(&self, image: &Image) -> Result<Vec<u8>, Problem> {
        let all = || self.objects.iter().map(|object| &object.rle);
        Ok(match self.format {
            Format::Mask => encode_mask(&self.union()?, MaskDepth::Byte)?,
            Format::Cutout => encode_rgba(self.size, &cut_out(image, &self.union()?)?)?,
            Format::Labels => {
                let masks: Vec<Rle> = all().cloned().collect();
                if masks.len() > usize::from(u8::MAX) {
                    return Err(Problem::Invalid("labels take at most 255 objects".to_owned()));
                }
                encode_labels(self.size, &label_map(self.size, &masks)?)?
            }
            Format::Overlay => {
                let colours = self.objects.iter().map(|object| object.colour);
                let masks: Vec<(&Rle, [u8; 3])> = all().zip(colours).collect();
                encode_image(&overlay_with(image, &masks)?)?
            }
            Format::Svg => svg(self)?.into_bytes(),
            Format::Coco => coco(self)?,
            Format::Geojson => geojson(self)?,
        })
    }

    /// Every pixel of any object.
    fn union(&self) -> Result<Mask, ImageError> {
        let mut pixels = vec![false; self.size.pixels(1)?];
        for object in &self.objects {
            let mask = object.rle.to_mask()?;
            pixels.iter_mut().zip(mask.pixels()).for_each(|(all, own)| *all |= own);
        }
        Mask::from_pixels(self.size, pixels)
    }
}

impl Object {
    fn new(index: usize, object: ExportObject, size: Size) -> Result<Self, Problem> {
        let wrong = |reason: String| Problem::Invalid(format!("objects[{index}].{reason}"));
        let [height, width] = object.rle.size;
        if (width, height) != (size.width, size.height) {
            return Err(wrong(format!(
                "rle.size is [{height}, {width}]; the picture has [{}, {}]",
                size.height, size.width
            )));
        }
        let rle = Rle::from_coco_string(size, &object.rle.counts)
            .map_err(|error| wrong(format!("rle.counts: {error}")))?;
        let colour = match object.colour {
            None => distinct_colour(index),
            Some(text) => {
                colour(&text).ok_or_else(|| wrong(format!("colour: {text:?} is not #rrggbb")))?
            }
        };
        Ok(Object { name: object.name, rle, score: object.score, colour })
    }
}

/// The colour `#rrggbb`.
fn colour(text: &str) -> Option<[u8; 3]> {
    let digits = text.strip_prefix('#').filter(|digits| digits.len() == 6 && digits.is_ascii())?;
    let number = u32::from_str_radix(digits, 16).ok()?;
    let [_, red, green, blue] = number.to_be_bytes();
    Some([red, green, blue])
}
