package aws

import (
	"encoding/base64"
	"slices"
	"strconv"
	"strings"
)

// filterValues answers the values that an item has for a filter name, and whether
// the name is one that the call knows. Tags are answered by taggedValues.
type filterValues[T any] func(item T, name string) (values []string, known bool)

// taggedValues wraps values with the filters that work on every tagged resource.
func taggedValues[T any](tags func(T) map[string]string, values filterValues[T]) filterValues[T] {
	return func(item T, name string) ([]string, bool) {
		if name == "tag-key" {
			return sortedKeys(tags(item)), true
		}
		if key, ok := strings.CutPrefix(name, "tag:"); ok {
			if value, set := tags(item)[key]; set {
				return []string{value}, true
			}
			return nil, true
		}
		return values(item, name)
	}
}

// fields is a filterValues for items whose filters are plain attributes.
func fields[T any](attributes func(T) map[string]string) filterValues[T] {
	return func(item T, name string) ([]string, bool) {
		value, ok := attributes(item)[name]
		return []string{value}, ok
	}
}

// filtered keeps the items that pass every Filter.N of the request.
func filtered[T any](p *params, items []T, values filterValues[T]) ([]T, error) {
	filters := p.list("Filter")
	if len(items) == 0 {
		return items, nil
	}
	for _, f := range filters {
		if _, known := values(items[0], f.str("Name")); !known {
			return nil, newError("InvalidParameterValue", "The filter '%s' is invalid", f.str("Name"))
		}
	}
	return slices.DeleteFunc(items, func(item T) bool {
		return slices.ContainsFunc(filters, func(f *params) bool {
			have, _ := values(item, f.str("Name"))
			return !anyMatch(f.strings("Value"), have)
		})
	}), nil
}

func anyMatch(patterns, values []string) bool {
	return slices.ContainsFunc(values, func(v string) bool {
		return slices.ContainsFunc(patterns, func(p string) bool { return glob(p, v) })
	})
}

// page cuts one page out of items by MaxResults and NextToken and returns the token
// of the page that follows, empty at the end.
func page[T any](p *params, items []T) ([]T, string, error) {
	return cut(items, p.str("NextToken"), p.int("MaxResults", 0))
}

func cut[T any](items []T, token string, size int) ([]T, string, error) {
	start := 0
	if token != "" {
		raw, err := base64.RawURLEncoding.DecodeString(token)
		if start, _ = strconv.Atoi(string(raw)); err != nil || start <= 0 || start > len(items) {
			return nil, "", newError("InvalidNextToken", "The token '%s' is invalid", token)
		}
	}
	if size <= 0 || start+size >= len(items) {
		return items[start:], "", nil
	}
	next := base64.RawURLEncoding.EncodeToString([]byte(strconv.Itoa(start + size)))
	return items[start : start+size], next, nil
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// sortedValues are the values of m in the order of their keys.
func sortedValues[V any](m map[string]V) []V {
	out := make([]V, 0, len(m))
	for _, k := range sortedKeys(m) {
		out = append(out, m[k])
	}
	return out
}
