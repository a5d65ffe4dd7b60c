// Package docs_test holds the documentation to the code: lists of events, labels and conditions,
// and every command that a page shows. What the registry of metrics is needed for is in
// test/observability, since it links the whole controller.
package docs_test

const root = "../.."
