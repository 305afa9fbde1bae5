//! `cutout man`.

use crate::support::folder;

#[test]
fn every_command_has_a_page_with_its_flags() {
    let folder = folder();
    let program = folder.cutout(&["man"]).succeeds();
    assert!(program.contains(".TH cutout 1"), "{program}");
    for (command, flag) in [("segment", "mask\\-threshold"), ("batch", "shard"), ("man", "COMMAND")]
    {
        assert!(program.contains(&format!("cutout\\-{command}(1)")), "{command}: {program}");
        let page = folder.cutout(&["man", command]).succeeds();
        assert!(page.contains(&format!(".TH cutout-{command} 1")), "{page}");
        assert!(page.contains(flag), "{flag}: {page}");
        assert!(page.contains("Examples:"), "{page}");
    }
    folder.cutout(&["man", "paint"]).wrong_usage(&["paint", "segment"]);
}
