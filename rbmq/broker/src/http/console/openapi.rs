//! The description of the interface (OpenAPI 3.1), made of the table of its addresses.

use serde_json::{Map, Value, json};

use super::routes::{BASE, Field, Kind, Needs, Parameter, ROUTES, Route};

/// The description.
pub(super) fn document() -> Value {
    let mut paths = Map::new();
    for route in ROUTES {
        add(&mut paths, format!("{BASE}{}", route.path), route, false);
        if route.streams {
            add(&mut paths, format!("{BASE}/stream{}", route.path), route, true);
        }
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "RBMQ console",
            "version": "1",
            "description": "The state of a broker. A client shows a token (Authorization: Bearer TOKEN), a certificate, or the \
                cookie of a session. Sizes are bytes, times are milliseconds.",
        },
        "paths": paths,
        "components": {
            "schemas": { "Problem": object(&[Field { name: "error", kind: Kind::Text, about: "The reason, for people." }]) },
            "securitySchemes": {
                "bearer": { "type": "http", "scheme": "bearer" },
                "session": { "type": "apiKey", "in": "cookie", "name": super::sessions::COOKIE },
            },
        },
        "security": [{ "bearer": [] }, { "session": [] }],
    })
}

fn add(paths: &mut Map<String, Value>, path: String, route: &Route, is_stream: bool) {
    let method = route.method.as_str().to_lowercase();
    let of_path = paths.entry(path).or_insert_with(|| json!({}));
    of_path[method] = operation(route, is_stream);
}

fn operation(route: &Route, is_stream: bool) -> Value {
    let (kind, about) = match is_stream {
        true => (
            "text/event-stream",
            format!("{} Again whenever it changes, at most once a second.", route.about),
        ),
        false => ("application/json", route.about.to_owned()),
    };
    let schema = object(route.fields);
    let mut operation = json!({
        "summary": about,
        "parameters": route.parameters.iter().map(parameter).collect::<Vec<_>>(),
        "responses": {
            "200": { "description": "The answer.", "content": { kind: { "schema": schema } } },
            "default": {
                "description": "A problem.",
                "content": { "application/json": { "schema": { "$ref": "#/components/schemas/Problem" } } },
            },
        },
    });
    if route.needs == Needs::Nothing {
        operation["security"] = json!([]);
    }
    operation
}

fn parameter(parameter: &Parameter) -> Value {
    let mut schema = json!({ "type": "string" });
    if !parameter.words.is_empty() {
        schema["enum"] = json!(parameter.words);
        schema["default"] = json!(parameter.words[0]);
    }
    json!({
        "name": parameter.name,
        "in": "query",
        "required": parameter.is_needed,
        "description": parameter.about,
        "schema": schema,
    })
}

fn object(fields: &[Field]) -> Value {
    let property = |field: &Field| {
        let kind = match field.kind {
            Kind::Number => json!("number"),
            Kind::MayNumber => json!(["number", "null"]),
            Kind::Text => json!("string"),
            Kind::MayText => json!(["string", "null"]),
            Kind::Bool => json!("boolean"),
            Kind::Object => json!("object"),
            Kind::MayObject => json!(["object", "null"]),
            Kind::List => json!("array"),
        };
        (field.name.to_owned(), json!({ "type": kind, "description": field.about }))
    };
    json!({ "type": "object", "properties": fields.iter().map(property).collect::<Map<_, _>>() })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The committed description is that of the code. `OPENAPI_WRITE=1` writes it anew.
    #[test]
    fn the_committed_description_is_that_of_the_code() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/console-openapi.json");
        let text = serde_json::to_string_pretty(&document()).unwrap() + "\n";
        if std::env::var_os("OPENAPI_WRITE").is_some() {
            std::fs::write(path, &text).unwrap();
        }
        let committed = std::fs::read_to_string(path).unwrap_or_default();
        let advice = "OPENAPI_WRITE=1 cargo test -p rbmq-broker --features http console::openapi";
        assert!(committed == text, "docs/console-openapi.json is another one; {advice} writes it");
    }
}
