//! Shared state that is changed before an await, where nothing is said of what becomes of it.
//!
//! ```text
//!  async fn report(mut self) {
//!      self.reported = true;            changed: nobody else will report
//!      self.filters.publish().await          left or dropped here: the others wait for ever
//!  }
//! ```
//!
//! A stream of a query may be left in the middle of a poll, or be dropped at any await. What others
//! see must be right even then: by a guard, or because the rest runs as a task of its own. Such
//! state is an atomic, a flag of a value that is used up, or what a lock or a channel holds.
//! Whoever changes it and awaits after that says above what happens if it is `dropped` or `left`.
//! The body of a spawned task is not looked at.
//!
//! Clippy knows types, and sees to guards of locks that are held over an await (`clippy.toml`).

use proc_macro2::LineColumn;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{
    Attribute, Expr, ExprAssign, ExprAsync, ExprAwait, ExprCall, ExprMethodCall, ImplItemFn,
};
use syn::{ItemFn, ItemMod, Lit, Signature, UnOp};

/// Methods that change state which others may see.
const CHANGES: [&str; 9] = [
    "compare_exchange",
    "fetch_add",
    "fetch_or",
    "fetch_sub",
    "send_if_modified",
    "send_modify",
    "send_replace",
    "store",
    "swap",
];

/// What the comment above must have one of.
const WORDS: [&str; 2] = ["dropped", "left"];

/// Lines of a comment above that are looked at.
const ABOVE: usize = 4;

/// Returns whether the awaits of `file` are checked.
pub fn is_checked(file: &str) -> bool {
    file.ends_with(".rs") && (file.starts_with("src/") || file.starts_with("tables/src/"))
}

/// An async function or block.
#[derive(Default)]
struct Body {
    changes: Vec<LineColumn>,
    last_await: Option<LineColumn>,
    /// The function takes `self` by value.
    uses_self_up: bool,
}

/// Walks through a file.
#[derive(Default)]
struct Finder {
    /// The bodies that are being walked through, the innermost last; `None` for other functions
    /// and for tasks.
    bodies: Vec<Option<Body>>,
    /// Lines where something is changed before an await.
    found: Vec<usize>,
}

impl Finder {
    fn within(&mut self, body: Option<Body>, walk: impl FnOnce(&mut Self)) {
        self.bodies.push(body);
        walk(self);
        if let Some(Some(body)) = self.bodies.pop()
            && let Some(last) = body.last_await
        {
            let before = body.changes.iter().filter(|change| **change < last);
            self.found.extend(before.map(|change| change.line));
        }
    }

    fn body(&mut self) -> Option<&mut Body> {
        self.bodies.last_mut()?.as_mut()
    }

    fn changes(&mut self, at: LineColumn) {
        if let Some(body) = self.body() {
            body.changes.push(at);
        }
    }

    fn function(&mut self, signature: &Signature, walk: impl FnOnce(&mut Self)) {
        let by_value = |receiver: &syn::Receiver| receiver.reference.is_none();
        let body = signature.asyncness.map(|_| Body {
            uses_self_up: signature.receiver().is_some_and(by_value),
            ..Body::default()
        });
        self.within(body, walk);
    }
}

/// Returns whether an item is there for tests only.
fn is_of_tests(attributes: &[Attribute]) -> bool {
    let is_test = |attribute: &Attribute| {
        let list = attribute.meta.require_list();
        attribute.path().is_ident("cfg") && list.is_ok_and(|list| list.tokens.to_string() == "test")
    };
    attributes.iter().any(is_test)
}

/// Returns the last name of a path that is called.
fn called(function: &Expr) -> Option<String> {
    match function {
        Expr::Path(path) => Some(path.path.segments.last()?.ident.to_string()),
        _ => None,
    }
}

impl<'ast> Visit<'ast> for Finder {
    fn visit_item_mod(&mut self, item: &'ast ItemMod) {
        if !is_of_tests(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_fn(&mut self, item: &'ast ItemFn) {
        self.function(&item.sig, |finder| visit::visit_item_fn(finder, item));
    }

    fn visit_impl_item_fn(&mut self, item: &'ast ImplItemFn) {
        self.function(&item.sig, |finder| visit::visit_impl_item_fn(finder, item));
    }

    fn visit_expr_async(&mut self, block: &'ast ExprAsync) {
        let body = Some(Body::default());
        self.within(body, |finder| visit::visit_expr_async(finder, block));
    }

    fn visit_expr_await(&mut self, expression: &'ast ExprAwait) {
        visit::visit_expr_await(self, expression);
        let at = expression.await_token.span().start();
        if let Some(body) = self.body() {
            body.last_await = body.last_await.max(Some(at));
        }
    }

    fn visit_expr_call(&mut self, call: &'ast ExprCall) {
        let name = called(&call.func);
        if name.as_deref() == Some("spawn") {
            return self.within(None, |finder| {
                for argument in &call.args {
                    match argument {
                        // The task itself.
                        Expr::Async(block) => visit::visit_block(finder, &block.block),
                        other => finder.visit_expr(other),
                    }
                }
            });
        }
        // What a lock or a channel holds is taken: `take(&mut *place)`.
        if let (Some("take"), Some(Expr::Reference(place))) = (name.as_deref(), call.args.first())
            && matches!(&*place.expr, Expr::Unary(unary) if matches!(unary.op, UnOp::Deref(_)))
        {
            self.changes(call.span().start());
        }
        visit::visit_expr_call(self, call);
    }

    fn visit_expr_method_call(&mut self, call: &'ast ExprMethodCall) {
        if CHANGES.iter().any(|change| call.method == change) {
            self.changes(call.method.span().start());
        }
        visit::visit_expr_method_call(self, call);
    }

    fn visit_expr_assign(&mut self, assignment: &'ast ExprAssign) {
        let is_flag =
            matches!(&*assignment.right, Expr::Lit(lit) if matches!(lit.lit, Lit::Bool(_)));
        let of_self = matches!(&*assignment.left, Expr::Field(field)
            if matches!(&*field.base, Expr::Path(path) if path.path.is_ident("self")));
        let is_used_up = self.body().is_some_and(|body| body.uses_self_up);
        if is_flag && of_self && is_used_up {
            self.changes(assignment.span().start());
        }
        visit::visit_expr_assign(self, assignment);
    }
}

/// Returns whether the comment above line `number` says what happens.
fn is_explained(lines: &[&str], number: usize) -> bool {
    let above = lines[..number - 1].iter().rev().take(ABOVE);
    let mut comments = above.take_while(|line| line.trim_start().starts_with("//"));
    comments.any(|line| WORDS.iter().any(|word| line.contains(word)))
}

/// Returns the places of `text`, of file `file`, where state is changed before an await.
///
/// # Errors
/// If it is no Rust.
pub fn findings(file: &str, text: &str) -> syn::Result<Vec<String>> {
    let mut finder = Finder::default();
    finder.visit_file(&syn::parse_file(text)?);
    finder.found.sort_unstable();
    finder.found.dedup();
    let lines: Vec<&str> = text.lines().collect();
    let found = finder.found.into_iter();
    let found = found.filter(|number| !is_explained(&lines, *number));
    let found = found.map(|number| {
        format!(
            "{file}:{number}: changed before an await: say above what happens if it is dropped or \
             left there"
        )
    });
    Ok(found.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<String> {
        let found = findings("src/a.rs", text).unwrap().into_iter();
        let line = |finding: String| finding.split(':').nth(1).unwrap_or_default().to_owned();
        found.map(line).collect()
    }

    /// Returns a method of these lines, the first of which is line 2 of a file.
    fn method(text: &str) -> String {
        format!("impl A {{\n{text}\n}}\n")
    }

    #[test]
    fn state_that_is_changed_before_an_await_is_found() {
        let text = "async fn a(&self) {\nself.n.fetch_sub(1, X);\nb().await;\n}";
        assert_eq!(lines(&method(text)), ["3"]);
        let text = "async fn a(mut self) {\nself.reported = true;\nself.b().await\n}";
        assert_eq!(lines(&method(text)), ["3"]);
        let text = "async fn a(&self) {\nlet x = std::mem::take(&mut *self.lock());\nb().await\n}";
        assert_eq!(lines(&method(text)), ["3"]);
        let text = "fn a() {\nlet b = async move {\nc.store(1, X);\nd.await\n};\n}";
        assert_eq!(lines(text), ["3"]);
    }

    #[test]
    fn state_that_is_changed_behind_the_last_await_or_by_its_owner_is_not() {
        let text = "async fn a(&self) {\nb().await;\nself.n.fetch_sub(1, X);\n}";
        assert_eq!(lines(&method(text)), [""; 0]);
        let text = "async fn a(&mut self) {\nself.is_short = true;\nb().await;\n}";
        assert_eq!(lines(&method(text)), [""; 0]);
        let text = "fn a(&self) {\nself.n.fetch_sub(1, X);\n}";
        assert_eq!(lines(&method(text)), [""; 0]);
        let text = "async fn a(&self) {\nself.n.fetch_sub(1, X);\nlet b = async { c().await };\n}";
        assert_eq!(lines(&method(text)), [""; 0]);
    }

    #[test]
    fn what_is_explained_and_what_is_a_task_is_not_found() {
        let text = "async fn a(&self) {\n// A guard gives it back if this is dropped.\n\
                    self.n.fetch_sub(1, X);\nb().await;\n}";
        assert_eq!(lines(&method(text)), [""; 0]);
        let text = "async fn a() {\nlet t = SpawnedTask::spawn(async move {\nn.store(1, X);\n\
                    b().await;\n});\nt.await;\n}";
        assert_eq!(lines(text), [""; 0]);
    }

    #[test]
    fn comments_strings_and_tests_are_no_code() {
        let text = "async fn a() {\n// n.store(1)\nlet s = \"x.store(1)\";\nb().await;\n}";
        assert_eq!(lines(text), [""; 0]);
        let text = "#[cfg(test)]\nmod tests {\nasync fn a() {\nn.store(1, X);\nb().await;\n}\n}";
        assert_eq!(lines(text), [""; 0]);
    }
}
