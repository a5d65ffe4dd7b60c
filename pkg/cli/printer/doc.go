// Package printer writes answers of the commands: as tables for people, as JSON and
// YAML for programs. It decides nothing and reads nothing but the answer. Color is
// only in tables, and only where the caller says that the reader's terminal has it.
package printer
