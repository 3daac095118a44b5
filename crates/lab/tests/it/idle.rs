//! One large stream on several threads has the same chunks as on one.

use onefold_lab::{Helpers, Reading, Tallies, saved};

use crate::{choice, random, read};

#[test]
fn help_changes_no_chunk() {
    let mut large = random(1, 20_000_000);
    large.resize(23_000_000, 7);
    large.extend_from_within(..5_000_001);
    let streams: [&[u8]; 3] = [&large, &large[..1000], &large[9..]];
    let choices = [
        choice("sieve", 4096),
        choice("sieve-threshold", 2048),
        choice("sieve", 100_000),
        choice("fastcdc", 8192),
        choice("whole-file", 8192),
    ];
    let alone = Tallies::new(&choices, 64 << 20);
    read(&alone, &streams);
    let alone = saved::encode(&alone.into_inner());
    for threads in [1, 2, 5] {
        let helpers = Helpers::new(threads - 1);
        let tallies = Tallies::new(&choices, 64 << 20);
        let mut reading = Reading::new(&tallies)
            .expect("chunkers that are")
            .helped(&helpers);
        for mut stream in streams {
            let read = reading.stream(b"/some/file.bin", &mut stream, |_| true);
            read.expect("memory can be read");
        }
        reading.finish();
        let helped = saved::encode(&tallies.into_inner());
        assert!(helped == alone, "{threads} threads");
    }
}
