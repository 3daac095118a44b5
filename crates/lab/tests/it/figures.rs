//! The metrics against counting one by one.

use std::collections::HashMap;

use crate::{choice, random, read};
use onefold_chunk::by_name;
use onefold_lab::{Estimate, Tallies, columns, plot};

/// Versions of some files: much data is in all of them, some is new in each.
fn versions(seed: u64) -> Vec<Vec<u8>> {
    let base = random(seed, 6 << 20);
    (0..6u64)
        .map(|version| {
            let mut data = base.clone();
            for edit in random(seed ^ (version + 1), 40 * 8).chunks_exact(8) {
                let at =
                    u64::from_le_bytes(edit.try_into().expect("eight bytes")) as usize % data.len();
                data.insert(at, version as u8);
            }
            data.extend(random(seed + 100 + version, 1 << 20));
            data
        })
        .collect()
}

#[test]
fn exact_figures_are_those_of_counting_one_by_one() {
    let data = versions(1);
    let streams: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
    let choices = [
        choice("sieve", 8192),
        choice("fastcdc", 4096),
        choice("fixed", 8192),
    ];
    let tallies = Tallies::new(&choices, 64 << 20);
    read(&tallies, &streams);
    for (choice, estimate) in tallies.estimates() {
        let mut chunker = by_name(&choice.chunker, choice.mean as usize, None).expect("a name");
        let (mut seen, mut chunks) = (HashMap::new(), 0);
        for mut rest in streams.iter().copied() {
            while !rest.is_empty() {
                let (chunk, after) = rest.split_at(chunker.cut(rest));
                seen.insert(chunk, chunk.len());
                chunks += 1;
                rest = after;
            }
        }
        let unique: usize = seen.values().sum();
        assert!(estimate.is_exact);
        assert_eq!(estimate.chunks, chunks);
        assert_eq!(estimate.unique_chunks as usize, seen.len());
        assert_eq!(estimate.unique_bytes as usize, unique);
        assert_eq!(estimate.unique_bytes_error, 0.0);
        let m = seen.len() as f64;
        let metadata = m * m.log2() / 8.0 + 20.0 * chunks as f64;
        let bytes = estimate.bytes as f64;
        assert!((estimate.ratio_meta() - bytes / (unique as f64 + metadata)).abs() < 1e-9);
        assert!((estimate.gain_bytes() - (bytes - unique as f64 - metadata)).abs() < 1.0);
    }
}

#[test]
fn nothing_read_is_a_ratio_of_one_and_can_be_drawn() {
    let tallies = Tallies::new(&[choice("sieve", 512)], 1 << 20);
    read(&tallies, &[b""]);
    let estimates = tallies.estimates();
    assert_eq!(estimates[0].1.ratio(), 1.0);
    assert!(plot::svg(&estimates).starts_with("<svg"));
    assert!(!plot::html(&estimates).contains("NaN"));
}

#[test]
fn a_parquet_file_holds_what_the_estimates_say() {
    use parquet::file::reader::{FileReader, SerializedFileReader};
    let data = random(4, 1 << 20);
    let choices = [choice("sieve", 8192), choice("whole-file", 8192)];
    let tallies = Tallies::new(&choices, 1 << 20);
    read(&tallies, &[&data, &data]);
    let estimates = tallies.estimates();
    let path = std::env::temp_dir().join(format!("onefold-{}.parquet", std::process::id()));
    let file = std::fs::File::create(&path).expect("a file");
    columns::parquet(&estimates, file).expect("written");
    let file = SerializedFileReader::new(std::fs::File::open(&path).expect("the file"));
    let file = file.expect("a Parquet file");
    std::fs::remove_file(&path).expect("gone");
    let rows: Vec<_> = file
        .get_row_iter(None)
        .expect("rows")
        .map(|row| row.expect("a row"))
        .collect();
    assert_eq!(rows.len(), 2);
    for (row, (choice, estimate)) in rows.iter().zip(&estimates) {
        use parquet::record::RowAccessor;
        assert_eq!(row.get_string(0).expect("a name"), &choice.chunker);
        assert_eq!(row.get_long(2).expect("bytes"), 2 << 20);
        assert_eq!(row.get_double(8).expect("a ratio"), estimate.ratio());
        assert!(row.get_bool(13).expect("a flag"));
    }
    assert_eq!((estimates[1].1.chunks, estimates[1].1.ratio()), (2, 2.0));
}

#[test]
fn a_picture_shows_small_differences_between_round_numbers() {
    let one = |mean: u64, ratio: f64| Estimate {
        bytes: 1 << 30,
        chunks: (1 << 30) / mean,
        unique_chunks: 1000.0,
        unique_bytes: (1 << 30) as f64 / ratio,
        unique_bytes_error: 5e6,
        is_exact: false,
    };
    let points: Vec<_> = (0..9)
        .map(|i| {
            (
                choice(&format!("chunker-{i}"), 4096),
                one(4096 << i, 1.02 + 0.01 * f64::from(i)),
            )
        })
        .collect();
    let svg = plot::svg(&points);
    for label in [
        ">1.00<",
        ">1.02<",
        ">1.10<",
        ">4 KiB<",
        ">1 MiB<",
        ">chunker-8<",
    ] {
        assert!(svg.contains(label), "{label}");
    }
    // The eighth has the first one's colour and another mark.
    assert!(svg.contains("rx=\"3\"") && svg.contains("rx=\"0\""));
}
