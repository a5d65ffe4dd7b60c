package scenario

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"
)

// ParseError is a fault of a scenario file with the place where it stands.
type ParseError struct {
	// File is the path as it was given, and Line counts from 1.
	File string
	Line int
	// Message says what is wrong and what would be right.
	Message string
}

// Error returns file:line: message, the form that editors jump to.
func (e *ParseError) Error() string {
	if e.File == "" {
		return fmt.Sprintf("line %d: %s", e.Line, e.Message)
	}
	return fmt.Sprintf("%s:%d: %s", e.File, e.Line, e.Message)
}

func lineError(n *yaml.Node, format string, args ...any) *ParseError {
	return &ParseError{Line: n.Line, Message: fmt.Sprintf(format, args...)}
}

var unmarshaler = reflect.TypeFor[yaml.Unmarshaler]()

// decode reads one YAML document into out, which points to a struct. Before yaml.v3 decodes, the
// tree is walked beside the Go type: yaml.v3's own KnownFields tells neither the known keys nor the
// line in a form that can be used without parsing its text.
func decode(file string, data []byte, out any) error {
	var doc yaml.Node
	if err := yaml.Unmarshal(data, &doc); err != nil {
		return fmt.Errorf("reading %s, %w", file, err)
	}
	if len(doc.Content) == 0 {
		return &ParseError{File: file, Line: 1, Message: "the file is empty; a scenario needs at least name and steps"}
	}
	err := known(doc.Content[0], reflect.TypeOf(out).Elem(), "a scenario")
	if err == nil {
		err = doc.Content[0].Decode(out)
	}
	var parse *ParseError
	if errors.As(err, &parse) {
		parse.File = file
		return parse
	}
	if err != nil {
		return fmt.Errorf("reading %s, %w", file, err)
	}
	return nil
}

// known refuses keys that t does not have. Types that decode themselves judge their own content.
func known(n *yaml.Node, t reflect.Type, where string) error {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if reflect.PointerTo(t).Implements(unmarshaler) {
		return nil
	}
	switch t.Kind() {
	case reflect.Slice:
		return knownItems(n, t, where)
	case reflect.Struct:
		return knownKeys(n, t, where)
	}
	return nil
}

func knownItems(n *yaml.Node, t reflect.Type, where string) error {
	if n.Kind != yaml.SequenceNode {
		return lineError(n, "%s must be a list: put a dash before its items", where)
	}
	for _, item := range n.Content {
		if err := known(item, t.Elem(), where); err != nil {
			return err
		}
	}
	return nil
}

func knownKeys(n *yaml.Node, t reflect.Type, where string) error {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if n.Kind != yaml.MappingNode {
		if n.Tag == "!!null" {
			return nil
		}
		return lineError(n, "%s must be a mapping with keys out of: %s", where, strings.Join(keys(t), ", "))
	}
	fields := fieldsOf(t)
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		field, ok := fields[key.Value]
		if !ok {
			return lineError(key, "unknown field %q in %s; known fields: %s", key.Value, where, strings.Join(keys(t), ", "))
		}
		if err := known(n.Content[i+1], field, key.Value); err != nil {
			return err
		}
	}
	return nil
}

func fieldsOf(t reflect.Type) map[string]reflect.Type {
	fields := map[string]reflect.Type{}
	for i := range t.NumField() {
		name, rest, _ := strings.Cut(t.Field(i).Tag.Get("yaml"), ",")
		if rest == "inline" {
			for k, v := range fieldsOf(t.Field(i).Type) {
				fields[k] = v
			}
			continue
		}
		if name != "" && name != "-" {
			fields[name] = t.Field(i).Type
		}
	}
	return fields
}

func keys(t reflect.Type) []string {
	names := []string{}
	for name := range fieldsOf(t) {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
