//! Writes and crashes where a zone is full.

use super::*;

/// Zones of 256 KiB are filled by a quarter of a batch: what its first chunks stored is known to its last ones.
#[test]
fn duplicates_of_a_batch_are_found_behind_the_end_of_a_zone() {
    let dir = SimDir::new(3);
    let mut engine = create(&dir, 40, &ever_said(3));
    let chunks: Vec<(u64, u64)> = (0..300).map(|n| (n, 100_000 + n % 150)).collect();
    // No content is one that the tests store without a fingerprint.
    let content = |n: u64| {
        if n.is_multiple_of(13) {
            n + 1_000_001
        } else {
            n
        }
    };
    let writes: Vec<_> = chunks.iter().map(|(lbn, n)| (*lbn, content(*n))).collect();
    write(&mut engine, &writes).expect("room");
    let stats = engine.stats();
    let plain = writes.iter().filter(|(_, n)| n.is_multiple_of(13)).count() as u64;
    assert_eq!(plain, 0);
    assert_eq!((stats.unique_writes, stats.duplicate_writes), (150, 150));
}
