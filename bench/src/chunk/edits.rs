//! The costs of an edit: bytes of new chunks per random one-byte insertion, and the sizes of chunks, on random data.

use std::collections::HashSet;

use onefold_io::Random;

use super::contestant::Contestant;
use super::{ChunkArgs, QUANTILES, quantiles};

const DATA_BYTES: usize = 64 << 20;
/// Number of means behind an edit within which cuts must be the same again; a chunker that does not recover by then
/// (`fixed` never does) counts as if it had.
const FOLLOWED_MEANS: usize = 40;

pub fn run(args: &ChunkArgs, all: &[Contestant]) -> Result<(), String> {
    let mut random = Random(2);
    let data = random.bytes(DATA_BYTES);
    println!(
        "\nedits: {} insertions of a byte into {} MiB of random data; bytes of new chunks each, in means",
        args.edits,
        DATA_BYTES >> 20
    );
    println!("{:<22} {:>8} {:>8} {QUANTILES}", "chunker", "new", "mean");
    for one in all.iter().filter(|one| one.name != "fixed") {
        let asked = one.asked_for(args.mean as f64, &data);
        let mut lengths = Vec::new();
        let mut chunker = one.chunker(asked);
        chunker.cuts(&data, true, &mut |length| lengths.push(length as u32));
        let mean = data.len() as f64 / lengths.len() as f64;
        let ends = ends_of(&lengths);
        let lost: usize = (0..args.edits)
            .map(|_| lost_by_one(one, asked, &data, &ends, &mut random))
            .sum();
        lengths.pop();
        println!(
            "{:<22} {:>8.3} {:>8.0} {}",
            one.name,
            lost as f64 / args.edits as f64 / mean,
            mean,
            quantiles(&mut lengths)
        );
    }
    Ok(())
}

fn ends_of(lengths: &[u32]) -> Vec<usize> {
    let mut end = 0;
    let ends = lengths.iter().map(|length| {
        end += *length as usize;
        end
    });
    std::iter::once(0).chain(ends).collect()
}

/// Inserts a byte at a random place and sums the chunks that are new.
fn lost_by_one(
    one: &Contestant,
    asked: f64,
    data: &[u8],
    ends: &[usize],
    random: &mut Random,
) -> usize {
    let mut chunker = one.chunker(asked);
    let max = chunker.limits().max.min(DATA_BYTES / 16);
    let followed = FOLLOWED_MEANS * asked as usize;
    let place = 2 * max + random.next() as usize % (data.len() - 4 * max - followed);
    // The search for a chunk before may have reached the edit.
    let first = ends
        .partition_point(|end| end + max <= place)
        .saturating_sub(1);
    let begin = ends[first];
    let mut edited = data[begin..place].to_vec();
    edited.push(random.next() as u8);
    edited.extend_from_slice(&data[place..place + followed + max]);
    let old: HashSet<usize> = {
        let until = ends.partition_point(|end| *end <= place + followed + max);
        ends[first..until].iter().copied().collect()
    };
    let (mut lost, mut at, mut begins_alike) = (0, 0, true);
    while at + max < edited.len() {
        let end = at + chunker.cut(&edited[at..]);
        let behind = begin + end > place;
        let ends_alike = old.contains(&(begin + end - usize::from(behind)));
        let hit = begin + at <= place && behind;
        if hit || !begins_alike || !ends_alike {
            lost += end - at;
        }
        if behind && ends_alike {
            break;
        }
        (at, begins_alike) = (end, ends_alike);
    }
    lost
}
