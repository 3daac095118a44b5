//! Tests of the estimates.

mod figures;
mod idle;
mod saved;
#[path = "../../../io/tests/it/scale.rs"]
mod scale;
mod sketch;
mod tars;

use onefold_lab::{Choice, Reading, Tallies};

fn random(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed;
    let words = (0..len.div_ceil(8)).flat_map(|_| {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let word = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (word ^ (word >> 31)).to_le_bytes()
    });
    let mut out: Vec<u8> = words.collect();
    out.truncate(len);
    out
}

fn choice(chunker: &str, mean: u32) -> Choice {
    Choice {
        chunker: chunker.into(),
        mean,
    }
}

fn read(tallies: &Tallies, streams: &[&[u8]]) {
    let mut reading = Reading::new(tallies).expect("chunkers that are");
    for stream in streams {
        let mut stream = *stream;
        reading
            .stream(b"/some/file.bin", &mut stream, |_| true)
            .expect("memory can be read");
    }
    reading.finish();
}
