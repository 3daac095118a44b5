//! Tests of the estimates.

mod figures;
mod idle;
mod saved;
#[path = "../../../io/tests/it/scale.rs"]
mod scale;
mod sketch;
mod tars;

use onefold_lab::{ChunkerChoice, Reading, Tallies};

fn random(seed: u64, len: usize) -> Vec<u8> {
    onefold_io::Random(seed).bytes(len)
}

fn choice(chunker: &str, mean: u32) -> ChunkerChoice {
    ChunkerChoice {
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
