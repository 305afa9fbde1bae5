//! Checks of lowered graphs, for tests: everything about a launch that can be wrong without a card.

use crate::bundle::manifest;
use crate::launch::{Argument, Launch, Place, Region, TensorMap};
use crate::lower::{Lowered, Target};

/// Largest grid along x, y and z.
const MOST_BLOCKS: [u32; 3] = [i32::MAX as u32, 65535, 65535];

/// Finds launches that could not run: a kernel that is not in the bundle, parameters of another size, memory outside its region, a grid
/// or shared memory beyond the card's limits.
pub fn check(lowered: &Lowered, target: Target) -> Result<usize, String> {
    let mut count = 0;
    for (number, step) in lowered.steps.iter().enumerate() {
        for launch in &step.launches {
            check_launch(lowered, target, launch).map_err(|problem| {
                format!("step {number} ({}), {}: {problem}", step.op, launch.kernel.0)
            })?;
            count += 1;
        }
    }
    for (name, ty, place) in &lowered.outputs {
        inside(lowered, place).map_err(|problem| format!("output {name}: {problem}"))?;
        if place.bytes != ty.bytes() {
            return Err(format!("output {name}: {} bytes instead of {}", place.bytes, ty.bytes()));
        }
    }
    Ok(count)
}

fn check_launch(lowered: &Lowered, target: Target, launch: &Launch) -> Result<(), String> {
    let Some(kernel) = manifest().kernels.get(&*launch.kernel.0) else {
        return Err("is not in the bundle".to_owned());
    };
    if !manifest()
        .units
        .get(&kernel.unit)
        .is_some_and(|unit| unit.code.contains_key(&target.family))
    {
        return Err(format!("is not compiled for {:?}", target.family));
    }
    let sizes: Vec<usize> = launch.arguments.iter().map(Argument::size).collect();
    if sizes != kernel.parameters {
        return Err(format!("takes parameters of {:?} bytes, got {sizes:?}", kernel.parameters));
    }
    let fits =
        launch.grid.iter().zip(MOST_BLOCKS).all(|(&blocks, most)| blocks > 0 && blocks <= most);
    if !fits || launch.block == 0 || launch.block > 1024 {
        return Err(format!("grid {:?} of {} threads", launch.grid, launch.block));
    }
    let own = kernel.resources.get(&target.family).map_or(0, |resources| resources.shared);
    if (launch.shared_bytes + own) as usize > target.shared_bytes {
        return Err(format!("{} bytes of shared memory", launch.shared_bytes));
    }
    launch.arguments.iter().try_for_each(|argument| check_argument(lowered, argument))
}

fn check_argument(lowered: &Lowered, argument: &Argument) -> Result<(), String> {
    match argument {
        Argument::Read(place) => inside(lowered, place),
        Argument::Write(place) => match place.region {
            Region::Weight(_) | Region::Input(_) => Err(format!("writes {place:?}")),
            Region::Arena | Region::Output(_) => inside(lowered, place),
        },
        Argument::Table(places) => {
            places.iter().flatten().try_for_each(|place| inside(lowered, place))
        }
        Argument::Null | Argument::Bytes(_) => Ok(()),
        Argument::TensorMap(map) => check_map(lowered, map),
    }
}

fn check_map(lowered: &Lowered, map: &TensorMap) -> Result<(), String> {
    inside(lowered, &map.place)?;
    let rank = map.dims.len();
    let shaped =
        (1..=5).contains(&rank) && map.strides.len() + 1 == rank && map.box_dims.len() == rank;
    let aligned =
        map.place.offset.is_multiple_of(16) && map.strides.iter().all(|stride| stride % 16 == 0);
    let boxed = map.box_dims.iter().all(|&length| (1..=256).contains(&length));
    let spans =
        map.dims.iter().skip(1).zip(&map.strides).map(|(length, stride)| (length - 1) * stride);
    let bytes =
        spans.sum::<u64>() + map.dims.first().copied().unwrap_or(0) * map.element.size() as u64;
    if shaped && aligned && boxed && bytes <= map.place.bytes as u64 {
        return Ok(());
    }
    Err(format!("tensor map {map:?}"))
}

/// Whether a place lies in its region, at a multiple of its element's size at least.
fn inside(lowered: &Lowered, place: &Place) -> Result<(), String> {
    let length = match place.region {
        Region::Arena => Some(lowered.arena_bytes),
        Region::Weight(index) => lowered.weights.get(index).map(|used| used.bytes),
        Region::Input(index) => lowered.input_bytes.get(index).copied(),
        Region::Output(slot) => lowered.output_bytes.get(&slot).copied(),
    };
    let Some(length) = length else { return Err(format!("{place:?} is in no region")) };
    match place.offset.checked_add(place.bytes) {
        Some(end) if end <= length => Ok(()),
        Some(_) | None => Err(format!("{place:?} is outside its region of {length} bytes")),
    }
}
