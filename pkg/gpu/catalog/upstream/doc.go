// Package upstream holds one test, which compares the catalogue with what the
// AWS provider knows of the same machine types. It is apart from the catalogue
// so that testing the catalogue links no cloud SDK.
package upstream
