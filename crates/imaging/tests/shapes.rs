//! Polygons and connected components: hand-made cases, properties, and results of OpenCV (fixtures/make_imaging.py).

use cutout_imaging::{
    Mask, Point, Polygon, Rle, Size, SmallRegions, fill_polygons, polygons, remove_small_regions,
    simplify, single_ring, to_geojson, to_svg_path, to_wkb,
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
    let found = polygons(&mask).unwrap();
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
    assert_eq!(polygons(&mask(&["#.", ".#"])).unwrap().len(), 2);
    // A region that encloses a gap through a corner: an outline and a hole that share that point.
    let found = polygons(&mask(&["###", "#.#", "##."])).unwrap();
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
        let found = polygons(&mask).unwrap();
        assert!(found.iter().all(is_simple), "{mask:?}");
        assert_eq!(fill_polygons(size, &found).unwrap(), mask);
        // The rings are disjoint, so one even-odd fill of all rings gives the mask too.
        let mut together = Polygon { outer: vec![], holes: vec![] };
        together.holes.extend(found.iter().flat_map(Polygon::rings).cloned());
        assert_eq!(fill_polygons(size, &[together]).unwrap(), mask);
        assert_eq!(Rle::from_mask(&mask).unwrap().to_mask().unwrap(), mask);
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
    let full = polygons(&mask).unwrap();
    let simple = simplify(&full, 1.0);
    assert_eq!((simple.len(), simple[0].holes.len()), (1, 1));
    assert!(simple[0].outer.len() * 4 < full[0].outer.len());
    let again = fill_polygons(size, &simple).unwrap();
    assert!(again.to_rle().unwrap().iou(&mask.to_rle().unwrap()).unwrap() > 0.97);
    assert_eq!(simplify(&full, 0.0), full);
    // No ring disappears.
    let coarse = simplify(&full, 1e9);
    assert!(coarse[0].rings().all(|ring| ring.len() >= 3));
}

/// Which side of the line from `a` to `b` a point lies on, exactly: corners of pixels are integers.
fn side(a: Point, b: Point, c: Point) -> i64 {
    let [a, b, c] = [a, b, c].map(|point| point.map(|value| value as i64));
    ((b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0])).signum()
}

/// Whether two lines have more in common than one end of both.
fn meet([a, b]: [Point; 2], [c, d]: [Point; 2]) -> bool {
    let between = |p: Point, q: Point, r: Point| {
        side(p, q, r) == 0 && (0..2).all(|i| (p[i].min(q[i])..=p[i].max(q[i])).contains(&r[i]))
    };
    let ends = |point: Point, [p, q]: [Point; 2]| point == p || point == q;
    let on = [(c, [a, b]), (d, [a, b]), (a, [c, d]), (b, [c, d])];
    let inner =
        on.iter().any(|(point, line)| between(line[0], line[1], *point) && !ends(*point, *line));
    inner || (side(a, b, c) * side(a, b, d) < 0 && side(c, d, a) * side(c, d, b) < 0)
}

fn lines(ring: &[Point]) -> impl Iterator<Item = [Point; 2]> {
    (0..ring.len()).map(|i| [ring[i], ring[(i + 1) % ring.len()]])
}

/// Largest distance of a corner of `full` from the line of `simple` that replaces it.
fn largest_distance(full: &[Point], simple: &[Point]) -> f64 {
    let distance = |point: Point, [a, b]: [Point; 2]| {
        let (d, p) = ([b[0] - a[0], b[1] - a[1]], [point[0] - a[0], point[1] - a[1]]);
        let along = (p[0] * d[0] + p[1] * d[1]) / (d[0] * d[0] + d[1] * d[1]);
        let along = along.clamp(0.0, 1.0);
        (p[0] - along * d[0]).hypot(p[1] - along * d[1])
    };
    let start = full.iter().position(|corner| *corner == simple[0]).unwrap();
    let (mut at, mut worst) = (0, 0.0f64);
    for step in 1..=full.len() {
        let corner = full[(start + step) % full.len()];
        if corner == simple[(at + 1) % simple.len()] {
            at += 1;
        } else {
            worst = worst.max(distance(corner, [simple[at], simple[(at + 1) % simple.len()]]));
        }
    }
    assert_eq!(at, simple.len(), "the corners are corners of the original, in its order");
    worst
}

fn holds(ring: &[Point], point: Point) -> bool {
    let crossed = lines(ring).filter(|[a, b]| {
        (a[1] > point[1]) != (b[1] > point[1])
            && point[0] < a[0] + (point[1] - a[1]) / (b[1] - a[1]) * (b[0] - a[0])
    });
    crossed.count() % 2 == 1
}

#[test]
fn simplified_outlines_keep_their_topology() {
    let mut state = 5;
    let mut fewer = 0;
    for round in 0..120u64 {
        let size = Size::new(9 + (round as usize * 7) % 30, 9 + (round as usize * 5) % 30);
        let mut mask = random_mask(&mut state, size, [8, 30, 50, 60, 75, 93][round as usize % 6]);
        if round % 2 == 1 {
            remove_small_regions(&mut mask, 6, SmallRegions::Islands).unwrap();
        }
        let tolerance = [0.5, 0.75, 1.0, 1.5, 2.5, 6.0, 100.0][round as usize % 7];
        let full = polygons(&mask).unwrap();
        let simple = simplify(&full, tolerance);
        let rings = |polygons: &[Polygon]| -> Vec<Vec<Point>> {
            polygons
                .iter()
                .flat_map(|polygon| polygon.rings().cloned().collect::<Vec<_>>())
                .collect()
        };
        assert_eq!(simple.len(), full.len());
        let (full, simple) = (rings(&full), rings(&simple));
        assert_eq!(simple.len(), full.len(), "no ring disappears");
        for (before, after) in full.iter().zip(&simple) {
            assert!(largest_distance(before, after) <= tolerance, "round {round}");
            fewer += before.len() - after.len();
        }
        let all: Vec<[Point; 2]> = simple.iter().flat_map(|ring| lines(ring)).collect();
        for (index, one) in all.iter().enumerate() {
            for other in &all[..index] {
                assert!(!meet(*one, *other), "round {round}: {one:?} {other:?}");
            }
        }
        for (index, ring) in simple.iter().enumerate() {
            let others = || (0..full.len()).filter(|other| *other != index);
            let touches = |corner: &Point| others().any(|other| full[other].contains(corner));
            let Some(free) = ring.iter().find(|corner| !touches(corner)) else { continue };
            for other in others() {
                assert_eq!(
                    holds(&full[other], *free),
                    holds(&simple[other], *free),
                    "round {round}"
                );
            }
        }
    }
    assert!(fewer > 2000, "only {fewer} corners were removed");
}

#[test]
fn narrow_and_large_shapes_are_simplified() {
    // A diagonal of single pixels joined by edges: narrower than the tolerance.
    let size = Size::square(40);
    let stair = |i: usize| i % 40 == i / 40 || i % 40 == i / 40 + 1;
    let stair = Mask::from_pixels(size, (0..1600).map(stair).collect()).unwrap();
    let (full, simple) = (polygons(&stair).unwrap(), simplify(&polygons(&stair).unwrap(), 4.0));
    assert!(simple[0].outer.len() >= 3 && simple[0].outer.len() * 4 < full[0].outer.len());
    // A comb with tens of thousands of corners.
    let size = Size::new(20_000, 3);
    let comb = |i: usize| i / 20_000 > 0 || i.is_multiple_of(2);
    let comb = Mask::from_pixels(size, (0..60_000).map(comb).collect()).unwrap();
    let simple = simplify(&polygons(&comb).unwrap(), 1.0);
    assert!(simple[0].outer.len() < 40, "{}", simple[0].outer.len());
    // Noise: tens of thousands of rings that touch each other.
    let full = polygons(&random_mask(&mut 3, Size::square(500), 55)).unwrap();
    let simple = simplify(&full, 2.0);
    let count = |polygons: &[Polygon]| {
        polygons.iter().map(|polygon| polygon.rings().count()).sum::<usize>()
    };
    assert_eq!(count(&simple), count(&full));
}

#[test]
fn one_ring_fills_like_all_rings() {
    let mut state = 11;
    for round in 0..60 {
        let size = Size::new(5 + round % 20, 4 + round % 17);
        let mask = random_mask(&mut state, size, [20, 50, 80][round % 3]);
        let found = polygons(&mask).unwrap();
        let ring = Polygon { outer: single_ring(&found), holes: Vec::new() };
        assert_eq!(fill_polygons(size, &[ring]).unwrap(), mask);
        let coco = |polygon: &Polygon| {
            let outer = polygon.to_coco().chunks_exact(2).map(|pair| [pair[0], pair[1]]).collect();
            Polygon { outer, holes: Vec::new() }
        };
        let parts: Vec<Polygon> = found.iter().map(coco).collect();
        assert_eq!(fill_polygons(size, &parts).unwrap(), mask);
    }
    assert!(single_ring(&[]).is_empty());
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
        let simple = simplify(std::slice::from_ref(&polygon), 2.0);
        fill_polygons(size, &[&simple[..], &[polygon]].concat()).unwrap();
    }
}

#[test]
fn polygons_as_svg_and_geojson() {
    let found = polygons(&mask(&[".#"])).unwrap();
    assert_eq!(to_svg_path(&found), "M2 0L2 1L1 1L1 0Z");
    let expected = r#"{"type":"MultiPolygon","coordinates":[[[[2,0],[2,1],[1,1],[1,0],[2,0]]]]}"#;
    assert_eq!(to_geojson(&found), expected);
    serde_json::from_str::<Value>(&to_geojson(&found)).unwrap();
    assert_eq!(to_geojson(&[]), r#"{"type":"MultiPolygon","coordinates":[]}"#);
    // What Shapely writes for the same polygon.
    let wkb = "0106000000010000000103000000010000000500000000000000000000400000000000000000\
               0000000000000040000000000000f03f000000000000f03f000000000000f03f\
               000000000000f03f000000000000000000000000000000400000000000000000";
    let bytes: Vec<String> = to_wkb(&found).iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(bytes.concat(), wkb);
    assert_eq!(to_wkb(&[]), [1, 6, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(found[0].to_coco(), [2.0, 0.0, 2.0, 1.0, 1.0, 1.0, 1.0, 0.0]);
}

#[test]
fn small_region_removal_matches_opencv() {
    let answers: Value = serde_json::from_str(ANSWERS).unwrap();
    for case in answers["small_regions"].as_array().unwrap() {
        let side = |i: usize| case["size"][i].as_u64().unwrap() as usize;
        let size = Size::new(side(1), side(0));
        let read = |name: &str| {
            Rle::from_coco_string(size, case[name].as_str().unwrap()).unwrap().to_mask().unwrap()
        };
        let mut found = read("mask");
        let kind =
            if case["mode"] == "holes" { SmallRegions::Holes } else { SmallRegions::Islands };
        let changed =
            remove_small_regions(&mut found, case["area"].as_u64().unwrap() as usize, kind);
        assert_eq!(changed.unwrap(), case["changed"].as_bool().unwrap());
        assert_eq!(found, read("result"), "{kind:?}");
    }
}
