//! Results can be read back, also if the run is interrupted.

use std::fs;

use crate::support::{Folder, columns, fake_tools, grey_image, names_in, opened};
use cutout_imaging::{Image, Rle, Size, WriteError, distinct_colour};
use cutout_video::{
    FoundObject, FrameFolder, FrameResult, JsonLines, LabelPictures, MotText, ObjectMask,
    OverlayOptions, Sink, SinkError, Tools, VideoJson, WrittenMasks, open_overlay,
};
use serde_json::Value;

const SIZE: Size = Size::new(6, 4);

fn show(sink: &mut dyn Sink, index: usize, objects: &[ObjectMask]) -> Result<(), SinkError> {
    let image = grey_image(SIZE.width, SIZE.height, (10 * index % 256) as u8);
    sink.write(&FrameResult { index, image: &image, objects })
}

/// One object that moves one column to the right per frame.
fn moving(index: usize) -> Vec<ObjectMask> {
    vec![columns(3, SIZE, index % 4, index % 4 + 3)]
}

fn overlay_options(frame_rate: f64) -> OverlayOptions {
    OverlayOptions { frame_rate, tools: Tools::default() }
}

#[test]
fn labels_are_object_numbers() {
    let folder = Folder::new("labels");
    let target = folder.0.join("deep").join("masks");
    let mut sink = LabelPictures::create(&target).unwrap();
    // Where objects overlap, the lowest number is used, in any order.
    let objects = [columns(2, SIZE, 1, 4), columns(200, SIZE, 0, 2), columns(7, SIZE, 3, 6)];
    show(&mut sink, 0, &objects).unwrap();
    show(&mut sink, 12345, &[]).unwrap();
    show(&mut sink, 123_456, &[]).unwrap();
    Box::new(sink).finish().unwrap();
    assert_eq!(names_in(&target), ["00000.png", "12345.png", "123456.png"]);
}

#[test]
fn a_created_folder_without_frames_is_removed() {
    let folder = Folder::new("no-frame");
    let (new, old) = (folder.0.join("new"), folder.0.join("old"));
    fs::create_dir(&old).unwrap();
    for path in [&new, &old] {
        Box::new(LabelPictures::create(path).unwrap()).finish().unwrap();
        open_overlay(path, &overlay_options(25.0)).unwrap().finish().unwrap();
        // A dropped sink behaves like a finished one.
        assert!(FrameFolder::create(path).unwrap().path().is_dir());
    }
    assert_eq!(folder.names(), ["old"], "an existing folder is kept");
    // A folder with other files is kept.
    let sink = LabelPictures::create(&new).unwrap();
    fs::write(new.join("notes.txt"), "mine").unwrap();
    drop(sink);
    assert_eq!(names_in(&new), ["notes.txt"]);
}

#[test]
fn label_pngs_have_the_davis_palette() {
    let folder = Folder::new("palette");
    let mut sink = LabelPictures::create(&folder.0).unwrap();
    let objects = [columns(2, SIZE, 1, 4), columns(200, SIZE, 0, 2), columns(7, SIZE, 3, 6)];
    show(&mut sink, 0, &objects).unwrap();
    let file = fs::File::open(folder.0.join("00000.png")).unwrap();
    let mut reader = png::Decoder::new(std::io::BufReader::new(file)).read_info().unwrap();
    assert_eq!(reader.info().color_type, png::ColorType::Indexed);
    assert_eq!(reader.info().palette.as_ref().unwrap()[..9], [0, 0, 0, 128, 0, 0, 0, 128, 0]);
    let mut labels = vec![0; reader.output_buffer_size().unwrap()];
    reader.next_frame(&mut labels).unwrap();
    assert_eq!(labels, [200, 2, 2, 2, 7, 7].repeat(4));
}

#[test]
fn object_numbers_beyond_255_are_errors() {
    let folder = Folder::new("ids");
    let mut sink = LabelPictures::create(&folder.0).unwrap();
    for id in [0, 256, u32::MAX] {
        let error = show(&mut sink, 0, &[columns(id, SIZE, 0, 1)]).unwrap_err();
        assert!(matches!(error, SinkError::ObjectId { id: found } if found == id), "{error}");
    }
    let other = columns(1, Size::new(5, 4), 0, 1);
    let error = show(&mut sink, 4, &[other]).unwrap_err();
    assert!(matches!(error, SinkError::Image { frame: 4, .. }), "{error}");
    assert!(folder.names().is_empty());
    let file = folder.put("file", "x");
    assert!(matches!(LabelPictures::create(file), Err(SinkError::NotAFolder { .. })));
}

#[test]
fn lines_are_complete_after_every_frame() {
    let folder = Folder::new("lines");
    let path = folder.0.join("masks.jsonl");
    let mut sink = JsonLines::create(&path).unwrap();
    for index in 0..3 {
        show(&mut sink, index, &moving(index)).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.ends_with('\n'));
        let lines: Vec<Value> = text.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
        assert_eq!(lines.len(), index + 1);
        let line = &lines[index];
        assert_eq!(line["frame"], index);
        let object = &line["objects"][0];
        assert_eq!(
            (&object["id"], &object["score"], &object["area"]),
            (&3.into(), &0.5.into(), &12.into())
        );
        assert_eq!(object["bbox"], serde_json::json!([index as f64, 0.0, 3.0, 4.0]));
        assert_eq!(object["segmentation"]["size"], serde_json::json!([4, 6]));
        let counts = object["segmentation"]["counts"].as_str().unwrap();
        assert_eq!(Rle::from_coco_string(SIZE, counts).unwrap(), moving(index)[0].mask);
    }
    // A score that is NaN, and a frame without objects.
    let mut lost = moving(0);
    lost[0].score = f32::NAN;
    show(&mut sink, 3, &lost).unwrap();
    show(&mut sink, 4, &[]).unwrap();
    Box::new(sink).finish().unwrap();
    let text = fs::read_to_string(&path).unwrap();
    let last: Vec<&str> = text.lines().skip(3).collect();
    assert!(last[0].contains("\"score\":null"), "{}", last[0]);
    assert_eq!(last[1], "{\"frame\":4,\"objects\":[]}");
    let missing = folder.0.join("missing").join("masks.jsonl");
    let error = JsonLines::create(missing).err().unwrap();
    assert!(matches!(error, SinkError::Write(WriteError::NoFolder(_))), "{error}");
}

/// Colour of the overlay of frame `index` over grey at column `x`.
fn expected(index: usize, x: usize) -> [u8; 3] {
    let grey = [10 * index as u8; 3];
    let colour = distinct_colour(3);
    match (x as isize) - (index % 4) as isize {
        // The masks are so narrow that they are all outline: white outside, dark inside.
        1 => colour.map(|value| value / 3),
        0 | 2 => [255; 3],
        _ => grey,
    }
}

fn check_overlay(index: usize, image: &Image) {
    assert_eq!(image.size(), SIZE);
    for x in 0..SIZE.width {
        // The border of the image is not drawn as an outline.
        let edge = x == 0 || x + 1 == SIZE.width;
        if !edge {
            assert_eq!(image.pixel(x, 2).unwrap(), expected(index, x), "frame {index}, column {x}");
        }
    }
}

#[test]
fn gif_overlays_can_be_read_after_every_frame() {
    let folder = Folder::new("gif");
    let path = folder.0.join("overlay.GIF");
    let mut sink = open_overlay(&path, &overlay_options(30.0)).unwrap();
    for index in 0..7 {
        show(&mut *sink, index, &moving(index)).unwrap();
        // The file is a complete GIF after every frame.
        let source = opened(&path);
        assert_eq!(source.length(), Some(index + 1));
        let frames: Vec<Image> = source.map(Result::unwrap).collect();
        frames.iter().enumerate().for_each(|(index, image)| check_overlay(index, image));
        let bytes = fs::read(&path).unwrap();
        assert_eq!(bytes.last(), Some(&b';'));
    }
    let before = fs::read(&path).unwrap();
    drop(sink);
    assert_eq!(fs::read(&path).unwrap(), before);
    // 7 frames at 30 per second, rounded to hundredths of a second: 0.23 s.
    let rate = opened(&path).frame_rate().unwrap();
    assert!((rate - 7.0 / 0.23).abs() < 1e-9, "{rate}");
}

#[test]
fn gifs_drop_frames_beyond_fifty_per_second() {
    let folder = Folder::new("finished");
    let path = folder.0.join("overlay.gif");
    let mut sink = open_overlay(&path, &overlay_options(100.0)).unwrap();
    for index in 0..10 {
        show(&mut *sink, index, &moving(index)).unwrap();
    }
    sink.finish().unwrap();
    // Twice the rate at which viewers show GIFs: every second frame is dropped.
    let frames: Vec<Image> = opened(&path).map(Result::unwrap).collect();
    assert_eq!(frames.len(), 5);
    frames.iter().enumerate().for_each(|(index, image)| check_overlay(2 * index, image));
    // No frames at all.
    open_overlay(&path, &overlay_options(30.0)).unwrap().finish().unwrap();
    assert!(folder.names().is_empty());
}

#[test]
fn gif_frames_have_one_size_of_limited_extent() {
    let folder = Folder::new("gif-size");
    let path = folder.0.join("overlay.gif");
    let mut sink = open_overlay(&path, &overlay_options(10.0)).unwrap();
    let huge = grey_image(70_000, 1, 0);
    let error = sink.write(&FrameResult { index: 0, image: &huge, objects: &[] }).unwrap_err();
    assert!(matches!(error, SinkError::TooLarge { .. }), "{error}");
    show(&mut *sink, 0, &[]).unwrap();
    let other = grey_image(5, 4, 0);
    let error = sink.write(&FrameResult { index: 1, image: &other, objects: &[] }).unwrap_err();
    assert!(matches!(error, SinkError::FrameSize { frame: 1, .. }), "{error}");
    drop(sink);
    assert_eq!(opened(&path).count(), 1);
}

#[test]
fn overlays_are_written_to_folders() {
    let folder = Folder::new("folder");
    let target = folder.0.join("overlay");
    let mut sink = open_overlay(&target, &overlay_options(30.0)).unwrap();
    for index in 0..3 {
        show(&mut *sink, index, &moving(index)).unwrap();
    }
    sink.finish().unwrap();
    for (index, image) in opened(&target).enumerate() {
        check_overlay(index, &image.unwrap());
    }
    // An existing folder may have an extension.
    let dotted = folder.0.join("v1.0");
    fs::create_dir(&dotted).unwrap();
    assert!(open_overlay(&dotted, &overlay_options(30.0)).is_ok());
}

#[test]
fn objects_have_the_same_colour_in_all_frames() {
    let folder = Folder::new("colours");
    let mut sink = open_overlay(folder.0.join("o"), &overlay_options(30.0)).unwrap();
    let (first, second) = (columns(1, SIZE, 0, 1), columns(2, SIZE, 3, 6));
    show(&mut *sink, 0, &[first, second.clone()]).unwrap();
    show(&mut *sink, 1, &[second]).unwrap();
    let frames: Vec<Image> = opened(folder.0.join("o")).map(Result::unwrap).collect();
    assert_eq!(frames[0].pixel(4, 1), frames[1].pixel(4, 1));
    assert_eq!(frames[0].pixel(4, 1), Some(distinct_colour(2).map(|value| value / 3)));
}

#[test]
fn invalid_overlay_options_are_errors() {
    let folder = Folder::new("cannot");
    let refuse =
        |name: &str, rate| open_overlay(folder.0.join(name), &overlay_options(rate)).err().unwrap();
    assert!(matches!(refuse("a.avi", 30.0), SinkError::Extension { .. }));
    for rate in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        assert!(matches!(refuse("a.gif", rate), SinkError::FrameRate { .. }));
    }
    assert!(matches!(refuse("no/a.gif", 30.0), SinkError::Write(WriteError::NoFolder(_))));
    let error = refuse("a.mp4", 30.0);
    assert!(matches!(error, SinkError::NoFfmpeg { .. }));
    let message = error.to_string();
    assert!(message.contains("a.gif") && message.contains("apt install ffmpeg"), "{message}");
    let options = OverlayOptions { frame_rate: 30.0, tools: fake_tools() };
    let error = open_overlay(folder.0.join("no/a.mp4"), &options).err().unwrap();
    assert!(matches!(error, SinkError::Write(WriteError::NoFolder(_))), "{error}");
    let tools = Tools { ffmpeg: Some("/no/such/ffmpeg".into()), ffprobe: None };
    let options = OverlayOptions { frame_rate: 30.0, tools };
    let mut sink = open_overlay(folder.0.join("a.mp4"), &options).unwrap();
    assert!(matches!(show(&mut *sink, 0, &[]), Err(SinkError::Start { .. })));
    assert!(folder.names().is_empty());
}

#[cfg(unix)]
mod through_ffmpeg {
    use super::*;

    fn options() -> OverlayOptions {
        OverlayOptions { frame_rate: 29.97, tools: fake_tools() }
    }

    fn raw(folder: &Folder, name: &str) -> Vec<Image> {
        let bytes = fs::read(folder.0.join(name)).unwrap();
        assert_eq!(bytes.len() % (3 * SIZE.width * SIZE.height), 0);
        let frames = bytes.chunks_exact(3 * SIZE.width * SIZE.height);
        frames.map(|pixels| Image::from_rgb(SIZE, pixels.to_vec()).unwrap()).collect()
    }

    #[test]
    fn frames_are_passed_to_ffmpeg() {
        let folder = Folder::new("video");
        for (name, codec) in [
            ("-a.mp4", "libx264\n"),
            ("http:b.MOV", "libx264\n"),
            ("c.mkv", "-f\nmatroska\n"),
            ("d.webm", "libvpx-vp9\n"),
        ] {
            let mut sink = open_overlay(folder.0.join(name), &options()).unwrap();
            for index in 0..5 {
                show(&mut *sink, index, &moving(index)).unwrap();
            }
            sink.finish().unwrap();
            let frames = raw(&folder, name);
            assert_eq!(frames.len(), 5);
            frames.iter().enumerate().for_each(|(index, image)| check_overlay(index, image));
            let arguments = fs::read_to_string(folder.0.join("arguments")).unwrap();
            let target = format!("\nfile:{}\n", folder.0.join(name).display());
            assert!(arguments.ends_with(&target), "{arguments}");
            for part in
                [codec, "rawvideo\n-pix_fmt\nrgb24\n-s\n6x4\n-r\n29.97\n", "yuv420p\n", "pad="]
            {
                assert!(arguments.contains(part), "{part} in {arguments}");
            }
        }
    }

    #[test]
    fn a_dropped_sink_leaves_a_complete_file() {
        let folder = Folder::new("dropped");
        let mut sink = open_overlay(folder.0.join("a.mp4"), &options()).unwrap();
        show(&mut *sink, 0, &moving(0)).unwrap();
        drop(sink);
        assert_eq!(raw(&folder, "a.mp4").len(), 1);
    }

    #[test]
    fn the_error_of_a_failed_ffmpeg_is_reported() {
        let folder = Folder::new("dying");
        folder.put(
            "a.mp4.script",
            "head -c 72 >/dev/null; echo 'Unknown encoder libx264' >&2; exit 8",
        );
        let mut sink = open_overlay(folder.0.join("a.mp4"), &options()).unwrap();
        // The pipe buffers more than a frame, so the failure is noticed some frames later.
        let error = (0..10_000).find_map(|index| show(&mut *sink, index % 9, &moving(index)).err());
        let Some(SinkError::Ffmpeg { frames, ending, said, .. }) = error else {
            panic!("{error:?}")
        };
        assert!(frames >= 1);
        assert_eq!((ending.as_str(), said.as_str()), ("exit status: 8", "Unknown encoder libx264"));
        // `finish` reports it at the latest.
        folder.put("b.mp4.script", "cat >/dev/null; echo 'no space' >&2; exit 1");
        let mut sink = open_overlay(folder.0.join("b.mp4"), &options()).unwrap();
        show(&mut *sink, 0, &moving(0)).unwrap();
        let error = sink.finish().unwrap_err();
        assert!(
            error
                .to_string()
                .ends_with("b.mp4: ffmpeg failed after 1 frames (exit status: 1): no space")
        );
    }

    #[test]
    fn video_frames_have_one_size() {
        let folder = Folder::new("video-size");
        let mut sink = open_overlay(folder.0.join("a.mp4"), &options()).unwrap();
        show(&mut *sink, 0, &[]).unwrap();
        let other = grey_image(5, 4, 0);
        let error = sink.write(&FrameResult { index: 1, image: &other, objects: &[] }).unwrap_err();
        assert!(matches!(error, SinkError::FrameSize { frame: 1, .. }), "{error}");
        show(&mut *sink, 2, &[]).unwrap();
        sink.finish().unwrap();
        assert_eq!(raw(&folder, "a.mp4").len(), 2);
    }
}

#[test]
fn masks_are_read_back() {
    let folder = Folder::new("read-back");
    let (lines, masks) = (folder.0.join("m.jsonl"), folder.0.join("masks"));
    let order = [2, 3, 1];
    let objects = |index: usize| vec![columns(3, SIZE, index, index + 2), columns(9, SIZE, 0, 1)];
    let mut sinks: [Box<dyn Sink>; 2] = [
        Box::new(JsonLines::create(&lines).unwrap()),
        Box::new(LabelPictures::create(&masks).unwrap()),
    ];
    for sink in &mut sinks {
        order.iter().for_each(|index| show(&mut **sink, *index, &objects(*index)).unwrap());
    }
    for path in [&lines, &masks] {
        let mut written = WrittenMasks::open(path).unwrap();
        for index in order {
            let found = written.frame(index, SIZE).unwrap();
            let parts = |found: &[ObjectMask]| -> Vec<(u32, Rle)> {
                found.iter().map(|object| (object.id, object.mask.clone())).collect()
            };
            assert_eq!(parts(&found), parts(&objects(index)), "{}", path.display());
        }
        assert!(matches!(written.frame(7, SIZE), Err(SinkError::ReadBack { .. })));
        let wrong = WrittenMasks::open(path).unwrap().frame(2, Size::new(4, 6));
        assert!(matches!(wrong, Err(SinkError::ReadBack { .. })), "another size");
    }
    // Lines are read in their order; damaged pictures are errors.
    let error = WrittenMasks::open(&lines).unwrap().frame(3, SIZE).unwrap_err().to_string();
    assert!(error.contains("frame 2 where frame 3"), "{error}");
    let picture = masks.join("00002.png");
    let bytes = fs::read(&picture).unwrap();
    for length in [0, 20, bytes.len() / 2] {
        fs::write(&picture, &bytes[..length]).unwrap();
        assert!(WrittenMasks::open(&masks).unwrap().frame(2, SIZE).is_err(), "{length}");
    }
    fs::write(&lines, "{\"frame\":2,\"objects\":[{}]}\n").unwrap();
    assert!(WrittenMasks::open(&lines).unwrap().frame(2, SIZE).is_err());
}

#[test]
fn a_file_is_no_folder_of_frames() {
    let folder = Folder::new("no-folder");
    let path = folder.0.join("file");
    fs::write(&path, "mine").unwrap();
    let error = FrameFolder::create(&path).unwrap_err().to_string();
    assert!(error.ends_with("file: exists and is not a folder"), "{error}");
    assert_eq!(fs::read(&path).unwrap(), b"mine");
}

/// An object as a phrase finds it.
fn found(id: u32, phrase: Option<&str>, columns_of: (usize, usize)) -> ObjectMask {
    let found = FoundObject {
        phrase: phrase.map(str::to_owned),
        detection_score: 0.75,
        probability: 0.5,
        predicted_iou: None,
        presence: None,
        object_score: None,
    };
    ObjectMask { found: Some(found), ..columns(id, SIZE, columns_of.0, columns_of.1) }
}

#[test]
fn a_video_is_one_data_set() {
    let folder = Folder::new("video-json");
    let path = folder.0.join("tracks.json");
    let mut sink = VideoJson::create(&path, "street").unwrap();
    assert!(!path.exists(), "it appears when it is complete");
    // Frames in any order, from any frame on; object 9 turns out to be none.
    show(&mut sink, 2, &[found(1, Some("car"), (0, 2)), found(9, Some("bus"), (2, 4))]).unwrap();
    show(&mut sink, 3, &[found(1, Some("car"), (1, 3)), found(4, None, (3, 6))]).unwrap();
    show(&mut sink, 1, &[found(1, Some("car"), (2, 2))]).unwrap();
    sink.take_back(9, 2, 2).unwrap();
    Box::new(sink).finish().unwrap();
    let whole: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    let video = &whole["videos"][0];
    assert_eq!(
        (&video["length"], &video["width"], &video["height"]),
        (&4.into(), &6.into(), &4.into())
    );
    assert_eq!(video["file_names"].as_array().unwrap().len(), 4);
    assert_eq!(whole["categories"][2]["name"], "object");
    let annotations = whole["annotations"].as_array().unwrap();
    let [car, object] = &annotations[..] else { panic!("{annotations:?}") };
    assert_eq!(
        (&car["id"], &car["category_id"], &car["score"]),
        (&1.into(), &1.into(), &0.75.into())
    );
    assert_eq!((&object["id"], &object["category_id"]), (&4.into(), &3.into()));
    let segmentations = car["segmentations"].as_array().unwrap();
    assert!(segmentations[0].is_null() && segmentations[1].is_null(), "an empty mask is none");
    let counts = segmentations[3]["counts"].as_str().unwrap();
    assert_eq!(Rle::from_coco_string(SIZE, counts).unwrap(), columns(1, SIZE, 1, 3).mask);
    assert_eq!(car["bboxes"][3], serde_json::json!([1.0, 0.0, 2.0, 4.0]));
    assert_eq!(car["areas"], serde_json::json!([null, null, 8, 8]));
    // A dropped sink is complete too.
    let mut dropped = VideoJson::create(&path, "again").unwrap();
    show(&mut dropped, 0, &moving(0)).unwrap();
    let other = grey_image(9, 9, 1);
    let wrong = dropped.write(&FrameResult { index: 1, image: &other, objects: &[] });
    assert!(matches!(wrong, Err(SinkError::FrameSize { frame: 1, .. })));
    drop(dropped);
    let whole: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    assert_eq!(whole["videos"][0]["name"], "again");
    assert_eq!(whole["annotations"][0]["id"], 3);
}

#[test]
fn boxes_are_lines_of_text() {
    let folder = Folder::new("mot");
    let path = folder.0.join("tracks.txt");
    let mut sink = MotText::create(&path).unwrap();
    show(&mut sink, 0, &[found(1, Some("car"), (0, 2)), found(9, None, (2, 4))]).unwrap();
    // Score 0 as a logit is a probability of one half.
    show(
        &mut sink,
        4,
        &[ObjectMask { score: 0.0, ..columns(2, SIZE, 1, 3) }, columns(3, SIZE, 1, 1)],
    )
    .unwrap();
    let lines = fs::read_to_string(&path).unwrap();
    assert_eq!(lines.lines().count(), 3, "each frame at once, and no empty mask");
    sink.take_back(9, 0, 0).unwrap();
    Box::new(sink).finish().unwrap();
    assert_eq!(
        fs::read_to_string(&path).unwrap(),
        "1,1,0,0,2,4,0.500000,-1,-1,-1\n5,2,1,0,2,4,0.500000,-1,-1,-1\n"
    );
}

#[test]
fn what_is_taken_back_is_a_line() {
    let folder = Folder::new("taken-back");
    let path = folder.0.join("tracks.jsonl");
    let mut sink = JsonLines::create(&path).unwrap();
    show(&mut sink, 0, &moving(0)).unwrap();
    sink.take_back(3, 0, 7).unwrap();
    let text = fs::read_to_string(&path).unwrap();
    assert!(
        text.ends_with("\n{\"taken_back\":{\"id\":3,\"first_frame\":0,\"last_frame\":7}}\n"),
        "{text}"
    );
}
