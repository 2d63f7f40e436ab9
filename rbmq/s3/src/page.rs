//! The answers of a store that are XML: the names of objects, and errors. This module does no I/O.
//!
//! Their elements are found by their names. Names of objects are made here and have letters that XML never writes otherwise, so nothing is
//! to be decoded; a name of somebody else that has others is skipped.

use rocketbufs::Position;

/// Names of objects, in order.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Page {
    /// The positions that are the names of the objects.
    pub(crate) positions: Vec<Position>,
    /// Names that are no positions.
    pub(crate) others: usize,
    /// There may be more names behind these.
    pub(crate) has_more: bool,
}

/// The name of the object at a position. The order of names is that of positions.
pub(crate) fn name(position: Position) -> String {
    format!("{position:020}")
}

/// The content of an element.
pub(crate) fn element<'a>(xml: &'a str, tag: &str) -> Option<&'a str> {
    let begin = xml.find(&format!("<{tag}>"))? + tag.len() + 2;
    let len = xml[begin..].find(&format!("</{tag}>"))?;
    Some(&xml[begin..begin + len])
}

impl Page {
    /// Reads an answer to ListObjectsV2 about a folder. None: it is something else.
    pub(crate) fn read(xml: &str, folder: &str) -> Option<Self> {
        let is_whole = xml.trim_end().ends_with("</ListBucketResult>");
        let mut page = Self { has_more: element(xml, "IsTruncated")?.trim() == "true", ..Self::default() };
        let mut rest = xml;
        while let Some(begin) = rest.find("<Contents>") {
            let object = element(&rest[begin..], "Contents")?;
            let key = element(object, "Key")?;
            rest = &rest[begin + "<Contents>".len() + object.len()..];
            let digits = key.strip_prefix(folder).filter(|name| name.len() == 20);
            match digits.and_then(|name| name.parse().ok()).filter(|at| Some(&*name(*at)) == digits) {
                Some(position) => page.positions.push(position),
                None => page.others += 1,
            }
        }
        (is_whole && page.positions.is_sorted()).then_some(page)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(keys: &[&str], truncated: bool) -> String {
        let contents: String =
            keys.iter().map(|key| format!("<Contents><Key>{key}</Key><Size>9</Size></Contents>")).collect();
        format!(
            "<?xml version=\"1.0\"?>\n<ListBucketResult xmlns=\"x\"><Prefix>p/</Prefix><IsTruncated>{truncated}</IsTruncated>\
             {contents}</ListBucketResult>\n"
        )
    }

    #[test]
    fn names_that_are_no_positions_are_counted_and_left_out() {
        let (one, two) = (format!("p/{}", name(7)), format!("p/{}", name(u64::MAX)));
        let xml = list(&[&one, "p/readme", "q/00000000000000000008", "p/+0000000000000000008", &two], true);
        let page = Page::read(&xml, "p/").unwrap();
        assert_eq!(page, Page { positions: vec![7, u64::MAX], others: 3, has_more: true });
        assert_eq!(Page::read(&list(&[], false), "p/").unwrap(), Page::default());
        for cut in 0..xml.len() - 1 {
            assert_eq!(Page::read(&xml[..cut], "p/"), None, "{cut}");
        }
        assert_eq!(Page::read(&list(&[&two, &one], false), "p/"), None, "not in order");
        let foreign = format!(
            "<Contents><Size>9</Size><Key>x/€€</Key></Contents><Contents><Key>{one}</Key></Contents>"
        );
        let xml = format!("<ListBucketResult><IsTruncated>false</IsTruncated>{foreign}</ListBucketResult>");
        let page = Page::read(&xml, "p/").unwrap();
        assert_eq!(
            page,
            Page { positions: vec![7], others: 1, has_more: false },
            "letters of several octets"
        );
        assert_eq!(element("<Code>A</Code><Message>b</Message>", "Message"), Some("b"));
    }
}
