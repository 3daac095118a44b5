//! Repositories whose chunker learns from the data.

use crate::rig::Rig;

#[test]
fn a_sketch_is_kept_and_one_that_is_damaged_or_gone_costs_a_warning() {
    let rig = Rig::empty();
    rig.run(["init", "--encryption", "none", "--chunker", "fbc"])
        .ends(0);
    let text: Vec<u8> = (0..40_000u32)
        .flat_map(|i| i.wrapping_mul(2_654_435_761).to_le_bytes())
        .collect();
    rig.write("s/file", &text);
    let sketch = rig.repo().join("sketch");
    let backup = || rig.run(["backup", "s", "--force"]).ends(0).err;
    assert!(!backup().contains("warning"));
    let kept = std::fs::read(&sketch).expect("kept");
    assert!(!backup().contains("warning"));
    std::fs::write(&sketch, &kept[..kept.len() - 9]).expect("cut off");
    rig.run(["check"]).ends(13);
    assert!(backup().contains("the sketch of frequent segments"));
    rig.run(["check", "--read-data"]).ends(0);
    std::fs::remove_file(&sketch).expect("there");
    assert!(backup().contains("it is not there"));
    assert!(!backup().contains("warning"));
    assert_eq!(rig.restored("latest", "s").len(), 1);
}
