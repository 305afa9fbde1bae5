//! Polygons and connected components: hand-made cases, properties, and results of OpenCV (fixtures/make_imaging.py).
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use cutout_imaging::{
    Mask, Polygon, Rle, Size, SmallRegions, fill_polygons, polygons, remove_small_regions,
    to_geojson, to_svg_path,
};
use serde_json::Value;

const ANSWERS: &str = include_str!("../../../fixtures/imaging/masks.json");

fn mask(rows: &[&str]) -> Mask {
    let pixels = rows.iter().flat_map(|row| row.bytes().map(|byte| byte == b'#')).collect();
    Mask::from_pixels(Size::new(rows[0].len(), rows.len()), pixels).unwrap()
}

fn random_mask(state: &mut u64, size: Size, density: u64) -> Mask {
    let mut pixel = || {
        *state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (*state >> 33) % 100 < density
    };
    let pixels = (0..size.width * size.height).map(|_| pixel()).collect();
    Mask::from_pixels(size, pixels).unwrap()
}

#[test]
fn a_ring_with_a_hole_and_an_island_in_it() {
    let mask = mask(&["#####", "#...#", "#.#.#", "#...#", "#####"]);
    let found = polygons(&mask);
    assert_eq!(found.len(), 2);
    assert_eq!(found[0].outer.len(), 4);
    assert!(found[0].outer.contains(&[0.0, 0.0]) && found[0].outer.contains(&[5.0, 5.0]));
    assert_eq!(found[0].holes.len(), 1);
    assert!(found[0].holes[0].contains(&[1.0, 1.0]) && found[0].holes[0].contains(&[4.0, 4.0]));
    assert!(found[1].holes.is_empty());
    assert!(found[1].outer.contains(&[2.0, 2.0]));
}

#[test]
fn pixels_that_touch_in_a_corner_give_simple_rings() {
    // Two pixels that touch in a corner: two polygons.
    assert_eq!(polygons(&mask(&["#.", ".#"])).len(), 2);
    // A region that encloses a gap through a corner: an outline and a hole that share that point.
    let found = polygons(&mask(&["###", "#.#", "##."]));
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].holes.len(), 1);
    assert_eq!(found[0].holes[0].len(), 4);
}

fn is_simple(polygon: &Polygon) -> bool {
    polygon.rings().all(|ring| {
        let mut corners: Vec<(u64, u64)> =
            ring.iter().map(|p| (p[0] as u64, p[1] as u64)).collect();
        corners.sort_unstable();
        ring.len() >= 4 && corners.windows(2).all(|pair| pair[0] != pair[1])
    })
}

#[test]
fn filling_the_polygons_gives_the_mask() {
    let mut state = 7;
    for round in 0..400u64 {
        let size = Size::new(1 + round as usize % 23, 1 + (round as usize * 7) % 19);
        let mask = random_mask(&mut state, size, [0, 20, 50, 80, 100][round as usize % 5]);
        let found = polygons(&mask);
        assert!(found.iter().all(is_simple), "{mask:?}");
        assert_eq!(fill_polygons(size, &found).unwrap(), mask);
        // The rings are disjoint, so one even-odd fill of all rings gives the mask too.
        let mut together = Polygon { outer: vec![], holes: vec![] };
        together.holes.extend(found.iter().flat_map(Polygon::rings).cloned());
        assert_eq!(fill_polygons(size, &[together]).unwrap(), mask);
        assert_eq!(Rle::from_mask(&mask).to_mask(), mask);
    }
}

#[test]
fn fill_samples_at_row_centres() {
    let triangle = Polygon { outer: vec![[0.0, 0.0], [8.0, 0.0], [0.0, 4.0]], holes: vec![] };
    let expected = mask(&["#######.", "#####...", "###.....", "#......."]);
    assert_eq!(fill_polygons(Size::new(8, 4), &[triangle]).unwrap(), expected);
}

#[test]
fn simplified_outlines_stay_close() {
    let size = Size::square(101);
    let inside = |i: usize| {
        let (x, y) = ((i % 101) as f64 - 50.0, (i / 101) as f64 - 50.0);
        (10.0..45.0).contains(&x.hypot(y))
    };
    let mask = Mask::from_pixels(size, (0..101 * 101).map(inside).collect()).unwrap();
    let full = polygons(&mask);
    let simple: Vec<Polygon> = full.iter().map(|polygon| polygon.simplified(1.0)).collect();
    assert_eq!((simple.len(), simple[0].holes.len()), (1, 1));
    assert!(simple[0].outer.len() * 4 < full[0].outer.len());
    let again = fill_polygons(size, &simple).unwrap();
    assert!(again.to_rle().iou(&mask.to_rle()).unwrap() > 0.97);
    assert_eq!(full[0].simplified(0.0), full[0]);
    // No polygon disappears.
    assert!(full[0].simplified(1e9).outer.len() >= 3);
}

#[test]
fn arbitrary_polygons_never_panic() {
    let size = Size::new(5, 4);
    let wild = [
        vec![[f64::NAN, 0.0], [1.0, f64::INFINITY], [1e300, -1e300]],
        vec![[-1e9, -1e9], [1e9, -1e9], [1e9, 1e9], [-1e9, 1e9]],
        vec![],
        vec![[1.0, 1.0]],
    ];
    for outer in wild {
        let polygon = Polygon { outer, holes: vec![] };
        fill_polygons(size, &[polygon.simplified(2.0), polygon]).unwrap();
    }
}

#[test]
fn polygons_as_svg_and_geojson() {
    let found = polygons(&mask(&[".#"]));
    assert_eq!(to_svg_path(&found), "M2 0L2 1L1 1L1 0Z");
    let expected = r#"{"type":"MultiPolygon","coordinates":[[[[2,0],[2,1],[1,1],[1,0],[2,0]]]]}"#;
    assert_eq!(to_geojson(&found), expected);
    serde_json::from_str::<Value>(&to_geojson(&found)).unwrap();
    assert_eq!(to_geojson(&[]), r#"{"type":"MultiPolygon","coordinates":[]}"#);
    assert_eq!(found[0].to_coco(), [2.0, 0.0, 2.0, 1.0, 1.0, 1.0, 1.0, 0.0]);
}

#[test]
fn small_region_removal_matches_opencv() {
    let answers: Value = serde_json::from_str(ANSWERS).unwrap();
    for case in answers["small_regions"].as_array().unwrap() {
        let side = |i: usize| case["size"][i].as_u64().unwrap() as usize;
        let size = Size::new(side(1), side(0));
        let read = |name: &str| {
            Rle::from_coco_string(size, case[name].as_str().unwrap()).unwrap().to_mask()
        };
        let mut found = read("mask");
        let kind =
            if case["mode"] == "holes" { SmallRegions::Holes } else { SmallRegions::Islands };
        let changed =
            remove_small_regions(&mut found, case["area"].as_u64().unwrap() as usize, kind);
        assert_eq!(changed, case["changed"].as_bool().unwrap());
        assert_eq!(found, read("result"), "{kind:?}");
    }
}
