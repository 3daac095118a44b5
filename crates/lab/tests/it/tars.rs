//! A tar archive counts like the files in it.

use onefold_chunk::tar::Tars;
use onefold_lab::{Helpers, Reading, Tallies};

use crate::{choice, random, read};

/// An archive of members with these contents, each behind a header.
fn archive(contents: &[&[u8]]) -> Vec<u8> {
    let mut out = Vec::new();
    for content in contents {
        let mut header = [0; 512];
        header[..4].copy_from_slice(b"name");
        header[124..136].copy_from_slice(format!("{:011o}\0", content.len()).as_bytes());
        header[148..156].fill(b' ');
        header[156] = b'0';
        header[257..263].copy_from_slice(b"ustar\0");
        let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
        header[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
        out.extend(header);
        out.extend(*content);
        out.resize(out.len().next_multiple_of(512), 0);
    }
    out.resize(out.len() + 1024, 0);
    out
}

#[test]
fn members_of_a_tar_are_found_among_the_files() {
    let data = random(5, 3_000_000);
    let files = [
        &data[..1_000_001],
        &data[1_000_001..1_200_000],
        &data[1_200_000..],
    ];
    let tar = archive(&files);
    let streams = [files[0], files[1], files[2], &tar];
    let choices = [choice("sieve", 8192), choice("fastcdc", 4096)];
    let new = |tars| {
        let tallies = Tallies::new(&choices, 64 << 20).cutting(tars);
        read(&tallies, &streams);
        tallies.estimates()
    };
    for (choice, estimate) in new(Some(Tars::Magic)) {
        let more = estimate.unique_bytes - data.len() as f64;
        // Headers, and the zeros that fill up blocks.
        assert!((1024.0..5_000.0).contains(&more), "{choice:?}: {more}");
    }
    for (choice, estimate) in new(None) {
        assert!(
            estimate.unique_bytes > data.len() as f64 + 8000.0,
            "{choice:?}"
        );
    }
    // Helpers change nothing.
    let tallies = Tallies::new(&choices, 64 << 20).cutting(Some(Tars::Magic));
    let helpers = Helpers::new(2);
    let mut reading = Reading::new(&tallies)
        .expect("chunkers that are")
        .helped(&helpers);
    for mut stream in streams {
        reading
            .stream(b"/some/file.bin", &mut stream, |_| true)
            .expect("memory can be read");
    }
    reading.finish();
    assert_eq!(tallies.estimates(), new(Some(Tars::Magic)));
}
